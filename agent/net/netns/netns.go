// Package netns runs functions in other network namespaces.
//
// Each function runs on a thread of its own, which returns to the home namespace afterwards; a thread that cannot
// return is never used again. Sockets that the function opens stay in the namespace; goroutines that it starts do not
// run there. No thread is given up without need: it could be the main thread, whose namespace /proc/self/net shows for
// the whole process.
package netns

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Inside runs f in the namespace ns.
func Inside(ns *os.File, f func() error) error {
	return away(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		return f()
	})
}

// Empty runs f in a new, empty namespace, which ends with f or with the last socket that was opened in it.
func Empty(f func() error) error {
	return away(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make an empty network namespace: %w", err)
		}
		return f()
	})
}

func away(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			result <- err
			return
		}
		defer home.Close()
		err = f()
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}
