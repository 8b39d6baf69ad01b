package base

import "fmt"

// Exited is the exit code of a command that ran on a node; the program ends with the same code.
type Exited int

func (e Exited) Error() string { return fmt.Sprintf("the command ended with exit code %d", int(e)) }
