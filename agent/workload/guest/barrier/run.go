package barrier

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// shell runs files whose format the kernel does not know, as execvp does: a script without an interpreter line.
func (p program) shell() program {
	return program{path: "/bin/sh", argv: append([]string{"/bin/sh", p.path}, p.argv[1:]...)}
}

// replace executes the command in this process's place. It returns only if that fails.
func (p program) replace(env []string) error {
	err := syscall.Exec(p.path, p.argv, env)
	if errors.Is(err, syscall.ENOEXEC) {
		s := p.shell()
		err = syscall.Exec(s.path, s.argv, env)
	}
	return fmt.Errorf("cannot run %s: %w", p.path, err)
}

// handedOn are the signals that the command gets as if it were PID 1. The kernel sends the others because of this
// process.
var handedOn = []os.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP,
}

// supervise runs the command, calls started once its program is in place, forwards signals and reaps until it ends. The
// exit code is the command's, or 128 + n if signal n ended it. Processes that it left running end with this process,
// but if a signal ended it, they get that signal and their time first (endTree). server is a child of ours, the server
// for other ranks; 0: none.
func (p program) supervise(env []string, started func(), server int) (code int, err error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, handedOn...)
	// Orphans become this process's children, also where it is not PID 1.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	if slices.ContainsFunc(p.argv, func(w string) bool { return strings.HasPrefix(filepath.Base(w), "tini") }) {
		env = append(slices.Clip(env), "TINI_SUBREAPER=1") // it warns otherwise, as it is not PID 1
	}
	attr := &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	// Start returns after exec has succeeded in the child, or with exec's error.
	pid, err := syscall.ForkExec(p.path, p.argv, attr)
	if errors.Is(err, syscall.ENOEXEC) {
		s := p.shell()
		pid, err = syscall.ForkExec(s.path, s.argv, attr)
	}
	if err != nil {
		return 0, fmt.Errorf("cannot run %s: %w", p.path, err)
	}
	started()
	var mu sync.Mutex
	var last syscall.Signal // the signal that was forwarded last
	sent := map[string]bool{}
	text, _ := script(p.argv, p.path)
	go func() {
		for s := range signals {
			mu.Lock()
			last = s.(syscall.Signal)
			to := pid
			if (last == syscall.SIGINT || last == syscall.SIGQUIT) && isShell(pid) {
				to = -pid
			}
			// A script that calls kill passes the signal on.
			if last == syscall.SIGTERM && isShell(pid) && handles(pid, "SigCgt", last) && !strings.Contains(text, "kill") {
				for _, key := range signalBehind(pid, last) {
					sent[key] = true
				}
			}
			_ = syscall.Kill(to, last) // the command may just have ended
			mu.Unlock()
		}
	}()
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the command: %w", err)
		case ended != pid || !status.Signaled() && !status.Exited():
		default:
			mu.Lock() // nothing is forwarded any more
			if slices.Contains(ending, last) || last != 0 && status.Signaled() && status.Signal() == last {
				endTree(last, server, sent)
			}
			if status.Signaled() {
				return 128 + int(status.Signal()), nil
			}
			return status.ExitStatus(), nil
		}
	}
}

// ending are the signals that ask a program to end. Others end only programs that do not handle them.
var ending = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT}
