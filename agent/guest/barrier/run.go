package barrier

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// shell runs what the kernel does not know, as execvp does: a script without a first line that says by what.
func (p program) shell() program {
	return program{path: "/bin/sh", argv: append([]string{"/bin/sh", p.path}, p.argv[1:]...)}
}

// replace becomes the command. It returns only if that fails.
func (p program) replace(env []string) error {
	err := syscall.Exec(p.path, p.argv, env)
	if errors.Is(err, syscall.ENOEXEC) {
		s := p.shell()
		err = syscall.Exec(s.path, s.argv, env)
	}
	return fmt.Errorf("cannot run %s: %w", p.path, err)
}

// handedOn are the signals the command gets as if it were PID 1. The rest are the kernel's about our own doings.
var handedOn = []os.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP,
}

// supervise runs the command, calls started once its program is in place, hands signals on and reaps until it ends.
// The exit code is the command's, 128 + n when signal n ended it. What it left running ends with this process.
func (p program) supervise(env []string, started func()) (code int, err error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, handedOn...)
	attr := &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}}
	// It returns after exec has succeeded in the child, or with exec's error.
	pid, err := syscall.ForkExec(p.path, p.argv, attr)
	if errors.Is(err, syscall.ENOEXEC) {
		s := p.shell()
		pid, err = syscall.ForkExec(s.path, s.argv, attr)
	}
	if err != nil {
		return 0, fmt.Errorf("cannot run %s: %w", p.path, err)
	}
	started()
	go func() {
		for s := range signals {
			_ = syscall.Kill(pid, s.(syscall.Signal)) // it may just have ended
		}
	}()
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the command: %w", err)
		case ended != pid:
		case status.Signaled():
			return 128 + int(status.Signal()), nil
		case status.Exited():
			return status.ExitStatus(), nil
		}
	}
}
