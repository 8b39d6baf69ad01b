package container

import (
	"bytes"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// daemonStarted returns when the daemon's process was started; ok is false if that is unknown (a remote daemon, or a
// socket that systemd opened before the daemon started).
func (e *Engine) daemonStarted() (at time.Time, ok bool) {
	path, found := strings.CutPrefix(e.docker.DaemonHost(), "unix://")
	if !found {
		return time.Time{}, false
	}
	pid, err := peerPID(path)
	if err != nil || pid <= 1 {
		b, err := os.ReadFile("/run/docker.pid")
		if err != nil {
			return time.Time{}, false
		}
		if pid, err = strconv.Atoi(strings.TrimSpace(string(b))); err != nil {
			return time.Time{}, false
		}
	}
	return processStarted(pid)
}

// peerPID returns the process that listens on a Unix socket.
func peerPID(path string) (int, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET,
			unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, credErr
	}
	return int(cred.Pid), nil
}

// processStarted maps the start of a process, which the kernel keeps in ticks since boot, to the wall clock.
func processStarted(pid int) (time.Time, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return time.Time{}, false
	}
	// The name, in brackets, may contain spaces: fields are counted from its end. Field 22 is the start.
	_, rest, found := bytes.Cut(b, []byte(") "))
	fields := bytes.Fields(rest)
	if !found || len(fields) < 20 {
		return time.Time{}, false
	}
	ticks, err := strconv.ParseInt(string(fields[19]), 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return time.Time{}, false
	}
	const perSecond = 100 // USER_HZ, the same on every architecture Go runs on
	age := time.Duration(boot.Nano()) - time.Duration(ticks)*time.Second/perSecond
	return time.Now().Add(-age), true
}
