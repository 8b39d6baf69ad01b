package overlay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The lock is a POSIX record lock, not flock: the kernel reports who holds it (F_GETLK), releases it with the process,
// and does not pass it on to children. The process opens the file once, since closing any descriptor of it releases the
// lock.

// lock is the lock of a folder, which this process holds until it ends.
type lock struct {
	path string
	id   unix.Stat_t
}

// acquire takes the folder's lock until this process ends.
func acquire(dir string) (*lock, error) {
	fd, err := openLock(dir) // deliberately never closed
	if err != nil {
		return nil, err
	}
	lk := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &lk); err != nil {
		return nil, fmt.Errorf("another overlay process holds the folder's lock: %w", err)
	}
	l := &lock{path: filepath.Join(dir, lockFile)}
	return l, os.NewSyscallError("fstat", unix.Fstat(fd, &l.id))
}

// lost reports whether the folder was removed or replaced, so that this process can no longer be found by it.
func (l *lock) lost() bool {
	var now unix.Stat_t
	err := unix.Stat(l.path, &now)
	if err != nil {
		return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
	}
	return now.Dev != l.id.Dev || now.Ino != l.id.Ino
}

// holder returns the id of the process that holds the folder's lock, or 0.
func holder(dir string) (int, error) {
	fd, err := openLock(dir)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return holderOf(fd)
}

func openLock(dir string) (int, error) {
	fd, err := unix.Open(filepath.Join(dir, lockFile), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, fmt.Errorf("open the overlay's lock: %w", err)
	}
	return fd, nil
}

func holderOf(fd int) (int, error) {
	lk := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &lk); err != nil {
		return 0, fmt.Errorf("ask who holds the overlay's lock: %w", err)
	}
	if lk.Type == unix.F_UNLCK {
		return 0, nil
	}
	return int(lk.Pid), nil
}

// killHolder kills the process that holds the folder's lock, if there is one, and returns when it is gone.
func killHolder(ctx context.Context, dir string) error {
	for {
		pid, err := holder(dir)
		if err != nil || pid == 0 {
			return err
		}
		if err := killLocked(ctx, dir, pid); err != nil {
			return err
		}
	}
}

// killLocked kills pid if it still holds the lock. It opens the pidfd first and then checks the lock again, so that it
// cannot kill another process that reused the id.
func killLocked(ctx context.Context, dir string, pid int) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(pidfd)
	if again, err := holder(dir); err != nil || again != pid {
		return err
	}
	if err := unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill the overlay process %d: %w", pid, err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{
			Fd:     int32(pidfd),
			Events: unix.POLLIN,
		}}, int((100 * time.Millisecond).Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
		if n > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the overlay process %d does not die: %w", pid, ctx.Err())
		}
	}
}
