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

// The lock is a POSIX record lock, not flock: the kernel tells who holds it (F_GETLK), drops it with the process, and
// does not hand it to children. The process opens the file once, since closing any descriptor of it drops the lock.

// acquire takes the folder's lock for the life of this process.
func acquire(dir string) error {
	fd, err := openLock(dir)
	if err != nil {
		return err
	}
	lk := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &lk); err != nil {
		return fmt.Errorf("another overlay process holds the folder's lock: %w", err)
	}
	return nil // fd stays open on purpose
}

// holder is the process that holds the folder's lock, 0 when none does.
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

// killHolder ends whatever process holds the folder's lock and returns when it is gone.
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

// killLocked kills pid if it still holds the lock once it cannot be mistaken for another process any more: the pidfd
// is opened first, then the lock is looked at again.
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
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int((100 * time.Millisecond).Milliseconds()))
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
