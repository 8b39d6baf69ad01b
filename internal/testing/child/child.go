// Package child runs the programs that a test needs, which end with it even if the test is killed.
package child

import (
	"bytes"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a program that runs.
type Process struct {
	cmd  *exec.Cmd
	out  output
	died chan struct{}
}

// Start starts a command, whose output it keeps. The kernel kills the program when the test's process ends.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, died: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 10 * time.Second // what it has started may keep its output open
	started := make(chan error)
	go func() {
		// The signal comes when the thread ends that started the program, so the thread waits for it.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(p.died)
	}()
	return p, <-started
}

// Await waits until the program has printed a line. It fails if the program ends before, or the time is over.
func (p *Process) Await(line string, within time.Duration) error {
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		if strings.Contains("\n"+p.Output(), "\n"+line+"\n") {
			return nil
		}
		select {
		case <-p.died:
			return fmt.Errorf("%s has ended:\n%s", p.cmd, p.Output())
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s does not print %s:\n%s", p.cmd, line, p.Output())
		}
	}
}

// PID returns the program's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Died is closed once the program has ended.
func (p *Process) Died() <-chan struct{} { return p.died }

// Kill kills the program and waits for its end. It may be called again.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.died
}

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Output returns what the program has printed.
func (p *Process) Output() string { return p.out.String() }

type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
