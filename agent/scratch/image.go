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

// mkfs makes the file system of a scratch.
const mkfs = "mkfs.ext4"

// mkfsArgs: without a journal, since nobody reads it after a crash; without a reserve for root; an inode for every 64
// KiB; and without giving back the blocks that were just allocated (nodiscard).
var mkfsArgs = []string{"-q", "-F", "-b", "4096", "-m", "0", "-i", "65536", "-e", "remount-ro", "-E",
	"nodiscard,lazy_itable_init=1", "-O", "^has_journal"}

// reached is told of each step of build, for tests that die there.
var reached = func(string) {}

// build makes a scratch of size bytes in dir and hands its detached mount to place. Nothing of it has a name before:
// whatever ends this process, the kernel takes back all that was made.
func build(ctx context.Context, dir string, size int64, place func(mount int) error) error {
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
	if err := format(ctx, file); err != nil {
		return err
	}
	reached("formatted")
	device, err := attach(fd)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the host's kernel gives no loop device for a scratch")
	}
	defer device.Close() // the mount has its own hold of it
	reached("attached")
	mount, err := mountDetached(device.Name())
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

// allocate gives a new file all its blocks. They read as zeros until they are written, whatever lies on the disk there.
func allocate(fd int, size int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return unusable(err)
	}
	if st.Type == unix.BTRFS_SUPER_MAGIC { // else each write would need room anew
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

// format makes the file system. mkfs gets the file itself, not a name: one that outlives its agent writes to nobody
// else's.
func format(ctx context.Context, file *os.File) error {
	cmd := exec.CommandContext(ctx, mkfs, append(mkfsArgs[:len(mkfsArgs):len(mkfsArgs)], "/proc/self/fd/3")...)
	cmd.ExtraFiles = []*os.File{file}
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fault.Wrap(fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out))), fault.Unavailable,
			"%s fails on the host's scratch disk", mkfs)
	}
	return nil
}

// prepare makes what the workload sees: a folder that any user of its image may write to, as /tmp.
func prepare(mount int) error {
	if err := unix.Mkdirat(mount, dataName, 0o700); err != nil {
		return err
	}
	return unix.Fchmodat(mount, dataName, 0o1777, 0)
}
