package cli

import "fmt"

// exited is the exit code of a command that ran on a node; it becomes ours.
type exited int

func (e exited) Error() string { return fmt.Sprintf("the command ended with exit code %d", int(e)) }
