package scratch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/fault"
)

// reached is called at each step of build, by tests that kill the process there.
var reached = func(string) {}

// build creates a scratch of size bytes in dir and passes its detached mount to place. Nothing of it has a name before
// that, so if this process is killed the kernel reclaims everything.
func build(ctx context.Context, dir string, k kind, size int64, place func(mount int) error) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return unusable(err)
	}
	file := os.NewFile(uintptr(fd), "scratch")
	defer file.Close()
	reached("file")
	if err := allocate(fd, size); err != nil {
		return err
	}
	reached("allocated")
	if err := format(ctx, k, file); err != nil {
		return err
	}
	reached("formatted")
	device, err := attach(fd)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the host's kernel gives no loop device for a scratch")
	}
	defer device.Close() // the mount holds its own reference
	reached("attached")
	mount, err := mountDetached(k, device.Name())
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the host cannot mount a scratch")
	}
	defer unix.Close(mount)
	reached("mounted")
	if err := prepare(mount); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the host cannot write to a scratch")
	}
	reached("prepared")
	if err := place(mount); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the host cannot put a scratch in its place")
	}
	reached("placed")
	return nil
}

const nocow = 0x00800000 // FS_NOCOW_FL

// allocate reserves all blocks of a new file. They read as zeros until they are written, whatever is on the disk there.
func allocate(fd int, size int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return unusable(err)
	}
	if st.Type == unix.BTRFS_SUPER_MAGIC { // otherwise each write would need new space
		if err := unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, nocow); err != nil {
			return unusable(err)
		}
	}
	for {
		err := unix.Fallocate(fd, 0, 0, size)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOSPC):
			return fault.Wrap(err, fault.Unavailable, "the host's scratch disk has no room for the %d GB that the node asks for",
				size/gb)
		}
		return fault.Wrap(err, fault.Unavailable, "the host's scratch disk cannot reserve room")
	}
}

// format creates the file system. mkfs gets the open file instead of a name: if it outlives its agent, it writes to no
// other file.
func format(ctx context.Context, k kind, file *os.File) (err error) {
	for _, args := range k.args {
		cmd := exec.CommandContext(ctx, program(k.mkfs), append(args[:len(args):len(args)], "/proc/self/fd/3")...)
		cmd.ExtraFiles = []*os.File{file}
		var out []byte
		out, err = cmd.CombinedOutput()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			return nil
		}
		err = fault.Wrap(fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out))), fault.Unavailable,
			"%s fails on the host's scratch disk", k.mkfs)
	}
	return err
}

// prepare creates what the workload sees: a folder that any user of its image may write to, like /tmp.
func prepare(mount int) error {
	if err := unix.Mkdirat(mount, DataName, 0o700); err != nil {
		return err
	}
	return unix.Fchmodat(mount, DataName, 0o1777, 0)
}
