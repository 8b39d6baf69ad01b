//go:build unix

package transfer

import (
	"os"
	"syscall"
)

// lock keeps a file from other processes until it is closed, and fails at once if another has it.
func lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
