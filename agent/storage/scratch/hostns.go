package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// hostMounts is the mount namespace in which Docker resolves what it mounts into containers: the machine's first one.
var hostMounts = "/proc/1/ns/mnt"

// onHost runs f where Docker sees its mounts. A systemd service may have a mount namespace of its own (ProtectHome and
// other settings create one), and what is mounted there is visible only there. A process that may not inspect process 1
// runs in a container, and Docker with it.
func onHost(f func() error) error {
	host, err := os.Readlink(hostMounts)
	if errors.Is(err, fs.ErrPermission) {
		return f()
	}
	if err != nil {
		return fmt.Errorf("look for the machine's mounts: %w", err)
	}
	own, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		return err
	}
	if own == host {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // deliberately never unlocked: the thread ends with the goroutine
		done <- enter(f)
	}()
	return <-done
}

func enter(f func() error) error {
	ns, err := os.Open(hostMounts)
	if err != nil {
		return err
	}
	defer ns.Close()
	// The working directory belongs to the namespace, and threads share it until this thread unshares it.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the process's own mounts: %w", err)
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the machine's mounts: %w", err)
	}
	return f()
}
