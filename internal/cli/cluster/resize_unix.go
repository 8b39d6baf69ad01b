//go:build unix

package cluster

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyResize sends a signal whenever the terminal's size changes.
func notifyResize(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH) }
