package barrier

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
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
// exit code is the command's, or 128 + n if signal n ended it. Processes that it left running end with this process.
func (p program) supervise(env []string, started func()) (code int, err error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, handedOn...)
	attr := &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}}
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
	go func() {
		for s := range signals {
			_ = syscall.Kill(pid, s.(syscall.Signal)) // the command may just have ended
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
