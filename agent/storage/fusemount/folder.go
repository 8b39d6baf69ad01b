package fusemount

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/storage/fusemount/wire"
	"github.com/musterhq/muster/agent/unixsock"
)

// folder is a mount's folder on the host: the mount point and what finds the process.
type folder string

func (f folder) point() string   { return filepath.Join(string(f), "mnt") }
func (f folder) socket() string  { return filepath.Join(string(f), "socket") }
func (f folder) process() string { return filepath.Join(string(f), "process.json") }
func (f folder) log() string     { return filepath.Join(string(f), "log") }

// requests is the agent's socket, for processes that send it requests.
func (f folder) requests() string { return filepath.Join(string(f), "requests") }

// leftFile is where it is stored that a mount was taken away in a container and the present one is not there yet.
func (f folder) leftFile() string { return filepath.Join(string(f), "left.json") }

// leftNote is where a container has lost its mount. Another process with the same PID is another container.
type leftNote struct {
	note
	Point string `json:"point"` // by the container's names
}

// saveLeft notes that the mount at a point of a process's container is about to be taken away.
func (f folder) saveLeft(pid int, point string) (err error) {
	n := leftNote{note: note{PID: pid, Boot: bootID()}, Point: point}
	if n.Start, err = startOf(pid); err != nil {
		return errEnded
	}
	return replaceFile(f.leftFile(), n)
}

// left returns where a process's container has lost its mount; "" = nowhere.
func (f folder) left(pid int) (string, error) {
	b, err := os.ReadFile(f.leftFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var n leftNote
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err != nil {
		return "", fmt.Errorf("read where a mount was: %w", err)
	}
	if start, err := startOf(pid); err != nil || n.PID != pid || n.Start != start || n.Boot != bootID() {
		return "", nil
	}
	return n.Point, nil
}

func (f folder) forgetLeft() error {
	if err := os.Remove(f.leftFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// note is what is stored of a process, to recognise it later.
type note struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // in clock ticks since the boot, of /proc/PID/stat
	Boot  string `json:"boot"`
	// Version is that of the Config that it has.
	Version int `json:"version"`
}

func (f folder) prepare() error {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(f.point(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func (f folder) save(n note) error { return replaceFile(f.process(), n) }

// replaceFile writes v to a file, which has either what it had or all of v whatever is killed.
func replaceFile(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// running returns the process of the folder, with a file descriptor that is its alone; ok is false if it does not run.
func (f folder) running() (n note, pidfd int, ok bool) {
	b, err := os.ReadFile(f.process())
	if err != nil || json.Unmarshal(b, &n) != nil || n.PID <= 0 || n.Boot != bootID() {
		return n, -1, false
	}
	pidfd, err = unix.PidfdOpen(n.PID, 0)
	if err != nil {
		return n, -1, false
	}
	if start, err := startOf(n.PID); err != nil || start != n.Start {
		unix.Close(pidfd)
		return n, -1, false
	}
	return n, pidfd, true
}

// remove ends what the folder is for. It removes no folder that may be a mount, and none with contents.
func (f folder) remove(ctx context.Context) error {
	if _, pidfd, ok := f.running(); ok {
		defer unix.Close(pidfd)
		if err := kill(ctx, pidfd); err != nil {
			return err
		}
	}
	reached("ended")
	if err := f.unmount(); err != nil {
		return err
	}
	reached("unmounted")
	errs := []error{}
	for _, p := range []string{f.point(), f.socket(), f.requests(), f.leftFile(), f.leftFile() + ".new", f.process(),
		f.process() + ".new", f.log(), string(f)} {
		if err := unix.Unlink(p); err == nil || errors.Is(err, unix.ENOENT) {
			continue
		}
		if err := unix.Rmdir(p); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove %s: %w", filepath.Base(p), err))
		}
	}
	return errors.Join(errs...)
}

// unmount takes away everything that is mounted at the folder's mount point on the host.
func (f folder) unmount() error {
	return onHost(func() error {
		for {
			switch err := unix.Unmount(f.point(), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); {
			case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // nothing is mounted there
				return nil
			case err != nil:
				return fmt.Errorf("unmount: %w", err)
			}
		}
	})
}

// state reads the state of the folder's process from its socket.
func (f folder) state(ctx context.Context) (s wire.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := unixsock.Dial(ctx, f.socket())
	if err != nil {
		return s, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	return s, json.NewDecoder(c).Decode(&s)
}

// kill ends a process and waits for its end.
func kill(ctx context.Context, pidfd int) error {
	if err := unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end the process of a mount: %w", err)
	}
	for ctx.Err() == nil {
		if ended(pidfd, 100*time.Millisecond) {
			return nil
		}
	}
	return fmt.Errorf("end the process of a mount: %w", ctx.Err())
}

// ended waits for the end of a process for some time.
func ended(pidfd int, patience time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(patience.Milliseconds()))
	return err == nil && n > 0
}

// startOf returns when a process began. The process's name, in parentheses, may contain anything.
func startOf(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const start = 22 - 3 // of proc_pid_stat(5), without the first two
	if len(fields) <= start || fields[0] == "Z" {
		return "", errors.New("the process has ended")
	}
	return fields[start], nil
}

func bootID() string {
	b, _ := hostinfo.BootID() // it is always there
	return b
}
