package update

import (
	"errors"
	"syscall"
	"time"
)

// whileBusy repeats f while it fails because a program's file is still open for writing: a child that this process
// forked in the meantime keeps the file open until it executes another program.
func whileBusy(f func() error) error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err := f(); !errors.Is(err, syscall.ETXTBSY) || time.Now().After(deadline) {
			return err
		}
	}
}
