package barrier

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is one of the processes that have this one as parent, because it started them or because their own parent
// has ended, or the server for other ranks.
type process struct {
	pid     int
	started string // since boot: a pid alone may be another process's later
	catches bool   // it has a handler for the signal
	ignores bool
	parent  bool // it has children
}

const (
	lookEvery = 20 * time.Millisecond // how often endTree looks for what has ended
	// leftLimit is how long endTree waits where nothing else ends the wait, as after a renter's own kill.
	leftLimit = 30 * time.Second
)

// endTree passes a signal that ended the command on to what the command has left running, and returns when all of that
// has ended, so that "bash -c 'prepare; train; upload'" can save its checkpoint: the shell dies of the signal, and its
// child is this process's then. Docker's SIGKILL at the end of the grace ends the wait.
//
// A process gets the signal once, and not before its parent has ended, which may pass it on. Of several, those that
// handle the signal come first, and filters of their output (tee) when these have ended. The server for other ranks is
// spared, and what it runs for them is not. sent has the keys of the processes that have got the signal already.
func endTree(sig syscall.Signal, server int, sent map[string]bool) {
	for deadline := time.Now().Add(leftLimit); time.Now().Before(deadline); time.Sleep(lookEvery) {
		reap()
		all := children(sig, server, os.Getpid(), server)
		waiting := slices.ContainsFunc(all, func(p process) bool { return sent[p.key()] && !p.ignores })
		signal := func(which func(process) bool) {
			for _, p := range all {
				if !sent[p.key()] && which(p) {
					sent[p.key()], waiting = true, waiting || !p.ignores
					_ = syscall.Kill(p.pid, sig) // it may just have ended
				}
			}
		}
		signal(func(p process) bool { return p.catches })
		if !waiting {
			signal(func(p process) bool { return p.parent })
		}
		if !waiting {
			signal(func(process) bool { return true })
		}
		if !waiting {
			return
		}
	}
}

// signalBehind passes a signal on to the children of a shell that would only handle it once they have ended: bash and
// dash run a trap after the program in the foreground. It returns the keys of these children.
func signalBehind(shell int, sig syscall.Signal) (sent []string) {
	for _, p := range children(sig, 0, shell) {
		if p.catches {
			sent = append(sent, p.key())
			_ = syscall.Kill(p.pid, sig)
		}
	}
	return sent
}

func (p process) key() string { return strconv.Itoa(p.pid) + "@" + p.started }

// reap collects the children that have ended.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil && err != syscall.EINTR {
			return
		}
	}
}

// children returns the living children of some processes, but one.
func children(sig syscall.Signal, spared int, of ...int) (out []process) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	parents := map[int]bool{}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		end := bytes.LastIndexByte(b, ')') // the name may contain anything
		if err != nil || end < 0 {
			continue // it has just ended
		}
		f := strings.Fields(string(b[end+1:])) // from field 3 of proc(5) on
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || len(f) < 20 || f[0] == "Z" || f[0] == "X" {
			continue
		}
		parent, _ := strconv.Atoi(f[1])
		parents[parent] = true
		if parent != 0 && slices.Contains(of, parent) && pid != spared {
			p := process{pid: pid, started: f[19]}
			p.catches, p.ignores = handles(pid, "SigCgt", sig), handles(pid, "SigIgn", sig)
			out = append(out, p)
		}
	}
	for i := range out {
		out[i].parent = parents[out[i].pid]
	}
	return out
}

// handles reports whether one of a process's masks of signals, SigCgt or SigIgn, has the signal.
func handles(pid int, mask string, sig syscall.Signal) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, mask+":"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return err == nil && bits&(1<<(sig-1)) != 0
		}
	}
	return false
}

// shells run other programs in the foreground. On SIGINT they wait for their program, because a terminal sends the
// signal to both.
var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox"}

func isShell(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && slices.Contains(shells, filepath.Base(exe))
}
