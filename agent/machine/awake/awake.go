// Package awake keeps a host from suspending while something is rented on it: a desktop suspends when no user is
// active, whatever its GPUs do.
//
// Invariant: the lock is held by a child that ends with this process, however that ends, so a host whose agent is gone
// for good may suspend again; the next agent takes a new lock.
package awake

import (
	"io"
	"log/slog"
	"os/exec"
	"sync"
	"time"
)

// Inhibitor holds systemd's sleep inhibitor lock while it is set. Hosts without systemd-inhibit do not suspend by
// themselves, so no lock is held there. It is safe for concurrent use.
type Inhibitor struct {
	log *slog.Logger

	mu     sync.Mutex
	held   *held
	tried  time.Time // when the last child was started
	warned bool      // whether it does not work here
}

type held struct {
	stdin io.Closer     // closing it ends the child
	ended chan struct{} // closed when the child is gone
}

// New returns an Inhibitor that holds nothing.
func New(log *slog.Logger) *Inhibitor { return &Inhibitor{log: log} }

// again is how soon a lock that was refused or lost is requested again.
const again = time.Minute

// Set takes or releases the lock. It returns at once, and may be called often.
func (i *Inhibitor) Set(on bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.held != nil {
		select {
		case <-i.held.ended: // refused, or killed
			i.held = nil
			if on && !i.warned {
				i.warned = true
				i.log.Warn("the lock against sleep was refused or taken away: the host may go to sleep while it is rented")
			}
		default:
		}
	}
	switch {
	case on && i.held == nil && time.Since(i.tried) >= again:
		i.tried = time.Now()
		i.held = i.start()
	case !on && i.held != nil:
		i.held.stdin.Close()
		i.held, i.tried = nil, time.Time{}
	}
}

// Close releases the lock and waits for its child.
func (i *Inhibitor) Close() {
	i.mu.Lock()
	h := i.held
	i.mu.Unlock()
	i.Set(false)
	if h != nil {
		<-h.ended
	}
}

func (i *Inhibitor) start() *held {
	path, err := exec.LookPath("systemd-inhibit")
	if err != nil {
		return nil
	}
	cmd := exec.Command(path, "--what=sleep:idle:handle-lid-switch", "--mode=block", "--who=muster-agent",
		"--why=GPUs of this machine are rented", "cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil
	}
	if err := cmd.Start(); err != nil {
		i.log.Warn("cannot ask for the lock against sleep", "err", err)
		return nil
	}
	h := &held{stdin: stdin, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // Set detects and reports it
		close(h.ended)
	}()
	return h
}
