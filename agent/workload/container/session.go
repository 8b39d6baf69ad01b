package container

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// leader is the first process of a session (setsid), identified by its pid on this machine and its start: another
// process that was given the same pid later has another start.
type leader struct {
	pid   int
	start uint64 // clock ticks since the boot
}

// findLeader returns the process if it is one of the container, or else the zero leader.
func findLeader(pid int, containerID string) leader {
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	st, ok := readStat(pid)
	if err != nil || !ok || !strings.Contains(string(groups), containerID) {
		return leader{}
	}
	return leader{pid, st.start}
}

func (l leader) alive() bool {
	st, ok := readStat(l.pid)
	return ok && l.pid > 0 && st.start == l.start && st.state != 'Z'
}

func (l leader) signal(name string) error {
	sig := unix.SignalNum("SIG" + name)
	if sig == 0 || !l.alive() {
		return nil
	}
	return unix.Kill(-l.pid, sig)
}

// hangupGrace is how long a session has after HUP before what is left of it is killed.
const hangupGrace = 3 * time.Second

func (l leader) hangup(ctx context.Context) {
	if l.pid <= 0 {
		return
	}
	// A process that ignores HUP is meant to stay (nohup), unless it has inherited that from a leader that ignores HUP.
	nohup := !ignoresHangup(l.pid)
	l.each(func(pid int) { _ = unix.Kill(pid, unix.SIGHUP); _ = unix.Kill(pid, unix.SIGCONT) })
	grace := time.NewTimer(hangupGrace)
	defer grace.Stop()
	kill := false
	for {
		left := 0
		l.each(func(pid int) {
			if nohup && pid != l.pid && ignoresHangup(pid) {
				return
			}
			left++
			if kill {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		})
		if left == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-grace.C:
			kill = true
		case <-time.After(execLook):
		}
	}
}

// each calls f with the pid of every live process of the session. A session whose leader is gone is still found by its
// number while one of its processes lives: the kernel does not reuse the number of an existing session.
func (l leader) each(f func(pid int)) {
	for _, pid := range pids() {
		st, ok := readStat(pid)
		if !ok || st.session != l.pid || st.state == 'Z' || st.start < l.start {
			continue
		}
		f(pid)
	}
}

// ignoresHangup reads the mask of ignored signals.
func ignoresHangup(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if mask, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			m, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && m&(1<<(uint(unix.SIGHUP)-1)) != 0
		}
	}
	return false
}

// stat holds the needed fields of /proc/<pid>/stat.
type stat struct {
	state   byte
	session int
	start   uint64
}

func readStat(pid int) (s stat, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return s, false
	}
	// The name in brackets may contain anything.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 20 {
		return s, false
	}
	s.state = f[0][0]
	session, err := strconv.Atoi(f[3])
	start, err2 := strconv.ParseUint(f[19], 10, 64)
	s.session, s.start = session, start
	return s, err == nil && err2 == nil
}

func pids() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	var out []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			out = append(out, pid)
		}
	}
	return out
}
