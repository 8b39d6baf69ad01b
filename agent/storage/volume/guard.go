package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// guardPatience is how long after a freeze the guard thaws by itself.
const guardPatience = 1 * time.Second

// A guard is a process that thaws a group if the one that froze it does not: because it was killed, or because it
// hangs. It has a session of its own, so that what kills the one does not kill the other.
type guard struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.ReadCloser
}

// What is written to a guard.
const (
	guardArmed = 'f'
	guardOver  = 'd'
)

func startGuard(command []string, g group) (*guard, error) {
	b, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(command[0], append(command[1:len(command):len(command)], string(b))...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stderr = os.Stderr
	w := &guard{cmd: cmd}
	if w.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if w.out, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the process that thaws: %w", err)
	}
	if _, err := io.ReadFull(w.out, make([]byte, 1)); err != nil {
		return nil, errors.Join(fmt.Errorf("start the process that thaws: %w", err), w.dismiss())
	}
	return w, nil
}

// arm notifies the guard that a freeze begins, and waits for its acknowledgement.
func (w *guard) arm() error {
	if _, err := w.in.Write([]byte{guardArmed}); err != nil {
		return fmt.Errorf("arm the process that thaws: %w", err)
	}
	if _, err := io.ReadFull(w.out, make([]byte, 1)); err != nil {
		return fmt.Errorf("arm the process that thaws: %w", err)
	}
	return nil
}

func (w *guard) dismiss() error {
	_, _ = w.in.Write([]byte{guardOver})
	w.in.Close()
	err := w.cmd.Wait()
	if err != nil {
		return fmt.Errorf("end the process that thaws: %w", err)
	}
	return nil
}

// Guard is the main function of the process that thaws; args is the group. It returns the exit code.
func Guard(args []string, in io.Reader, out io.Writer) int {
	var g group
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &g) != nil {
		fmt.Fprintln(os.Stderr, "usage: thaw GROUP")
		return 2
	}
	words := make(chan byte)
	go func() {
		defer close(words)
		for b := make([]byte, 1); ; {
			if _, err := io.ReadFull(in, b); err != nil {
				return
			}
			words <- b[0]
		}
	}()
	if _, err := out.Write([]byte{'.'}); err != nil {
		return 1
	}
	armed := false
	var due <-chan time.Time
	for {
		select {
		case word, ok := <-words:
			switch {
			case ok && word == guardArmed:
				armed, due = true, time.After(guardPatience)
				if _, err := out.Write([]byte{'.'}); err == nil {
					continue
				}
			case ok && word == guardOver:
				return 0
			}
		case <-due:
		}
		if armed {
			if err := g.thaw(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		if due = nil; armed { // a second freeze of the same process arms it again
			armed = false
			continue
		}
		return 0
	}
}
