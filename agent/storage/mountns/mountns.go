// Package mountns enters the mount namespaces of containers, to change what is mounted there.
package mountns

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// OnThread runs f on a new thread, which ends afterwards: a thread that has entered another namespace is of no use for
// anything else.
func OnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The main thread never ends: it would keep the container's mounts for good, and /proc/self would show them.
			defer runtime.UnlockOSThread()
			done <- OnThread(f) // this goroutine holds the main thread, so that f gets another one
			return
		}
		done <- f() // deliberately never unlocked: the thread ends with the goroutine
	}()
	return <-done
}

// Open opens the mount namespace of a process.
func Open(pid int) (*os.File, error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return nil, fmt.Errorf("find the container's mounts: %w", err)
	}
	return ns, nil
}

// Enter moves the calling thread into a mount namespace. Call it within OnThread.
func Enter(ns *os.File) error {
	// The working directory belongs to the namespace, and threads share it until this thread unshares it.
	err := unix.Unshare(unix.CLONE_FS)
	if err == nil {
		err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS)
	}
	if err != nil {
		return fmt.Errorf("enter the container's mounts: %w", err)
	}
	return nil
}

// OpenParent opens the folder above a mount point, without following links. The workload may have renamed folders above
// the mount, or put links there.
func OpenParent(point string) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, filepath.Dir(point), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, fmt.Errorf("open the folder above the mount in the container: %w", err)
	}
	return fd, nil
}
