// Package unixsock listens on and dials unix sockets whose path may be longer than the 108 bytes of a socket address:
// lease folders have long paths. The folder is opened and the socket is named through /proc/self/fd.
package unixsock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Listen creates a socket at path with mode. It replaces a socket that a dead process left.
func Listen(path string, mode os.FileMode) (*net.UnixListener, error) {
	var l *net.UnixListener
	err := inFolder(path, func(short string) error {
		if err := os.Remove(short); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		var err error
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false) // the short name is invalid by then
		return os.Chmod(short, mode)
	})
	if err != nil {
		if l != nil {
			l.Close()
		}
		return nil, fmt.Errorf("listen on %s: %w", filepath.Base(path), err)
	}
	return l, nil
}

// Dial connects to the socket at path.
func Dial(ctx context.Context, path string) (*net.UnixConn, error) {
	var c net.Conn
	err := inFolder(path, func(short string) error {
		var d net.Dialer
		var err error
		c, err = d.DialContext(ctx, "unix", short)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

func inFolder(path string, f func(short string) error) error {
	fd, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(fd)
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", fd, filepath.Base(path)))
}
