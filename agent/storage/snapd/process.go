package snapd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/musterhq/muster/agent/storage/volume"
	"github.com/musterhq/muster/agent/unixsock"
	"github.com/musterhq/muster/internal/agentapi"
)

// A process is the one of a run, or the intention to start it: keep starts it again whenever it ends.
type process struct {
	c    *Client
	ref  agentapi.LeaseRef
	dir  string
	http *http.Client
	kick chan struct{}
	over chan struct{} // closed when it has ended for good, and its folder is removed

	// Guarded by c.mu.
	cmd      *exec.Cmd     // nil: none runs
	stdin    func() error  // its end ends cmd
	ended    chan struct{} // closed when cmd has ended
	ends     int           // how often one has ended while it was wanted, since all volumes were restored
	startAt  time.Time     // not before then
	restored bool          // all volumes were restored once
	refused  bool          // it is not started again
	known    int           // volumes in the last answer
}

// newProcess returns the process of a run, which keep starts.
func newProcess(c *Client, ref agentapi.LeaseRef) *process {
	p := &process{c: c, ref: ref, dir: filepath.Join(c.cfg.Dir, fmt.Sprintf("%s-e%d", ref.Lease, ref.Epoch)),
		kick: make(chan struct{}, 1), over: make(chan struct{})}
	p.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return unixsock.Dial(ctx, filepath.Join(p.dir, controlSocket))
		},
	}}
	return p
}

// endIn is how long a process has to end when it should.
const endIn = 5 * time.Second

// keep keeps the process running while volumes of its run are wanted, until ctx ends.
func (p *process) keep(ctx context.Context) {
	defer close(p.over)
	for ctx.Err() == nil {
		p.c.mu.Lock()
		wanted, running, at, refused := len(p.c.wantedOf(p.ref)), p.cmd != nil, p.startAt, p.refused
		done := wanted == 0 && (!running || p.known == 0)
		p.c.mu.Unlock()
		switch {
		case done:
			p.end()
			return
		case !running && refused:
			pause(ctx, p.kick, time.Minute)
			continue
		case !running && time.Now().Before(at):
			pause(ctx, p.kick, time.Until(at))
			continue
		case !running:
			if err := p.start(); err != nil {
				p.c.cfg.Log.Error("the process for volumes cannot be started", "lease", p.ref, "err", err)
				pause(ctx, p.kick, endIn)
				continue
			}
		}
		if err := p.follow(ctx); err != nil && ctx.Err() == nil {
			p.c.cfg.Log.Debug("the process for volumes does not answer", "lease", p.ref, "err", err)
		}
		pause(ctx, p.kick, followEvery)
	}
	p.stop()
}

// start starts the process. It ends with the pipe to its standard input: when it should, or with this process, however
// that ends.
func (p *process) start() error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	argv := p.c.cfg.Command
	if len(argv) == 0 {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		argv = []string{self, "snapd"}
	}
	cmd := exec.Command(argv[0], append(argv[1:len(argv):len(argv)], p.dir)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is the agent's to handle
	last := new(lastWords)
	cmd.Stdout, cmd.Stderr = os.Stderr, last
	cmd.WaitDelay = endIn // a process that it has started may have the same standard error
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the process for volumes: %w", err)
	}
	ended := make(chan struct{})
	p.c.mu.Lock()
	p.cmd, p.stdin, p.ended, p.known = cmd, in.Close, ended, 0
	p.c.mu.Unlock()
	go func() {
		defer close(ended)
		err := cmd.Wait()
		p.c.mu.Lock()
		defer p.c.mu.Unlock()
		p.cmd, p.known = nil, 0
		if len(p.c.wantedOf(p.ref)) > 0 {
			p.noteEnd(why(err, last))
		}
		poke(p.kick)
	}()
	return nil
}

// maxEnds is how often the process of a run may end before its volumes are restored, until they count as refused.
const maxEnds = 5

// noteEnd notes that the process has ended although it should not. It ends its own run's work alone, and is started
// again a moment later. Callers hold c.mu.
func (p *process) noteEnd(why string, greedy bool) {
	p.c.cfg.Log.Warn("the process for volumes ended and is started again", "lease", p.ref, "reason", why)
	p.ends++
	p.startAt = time.Now().Add(min(retryFirst<<min(p.ends-1, 6), retryLast))
	refused := !p.restored && p.ends >= maxEnds
	for k, a := range p.c.wanted {
		// A workload that has begun keeps its volumes, and may still store them.
		refused = refused && (k.ref != p.ref || a.PID == 0 && !a.Ended)
	}
	for k := range p.c.wanted {
		if k.ref != p.ref {
			continue
		}
		s := p.c.states[k]
		s.Ref, s.Volume = k.ref, k.volume
		s.Restored = false // nothing is attached in the next one
		if !s.Closed {
			s.Problem = why
		}
		if refused {
			s.Refused, s.Unreadable, s.Closed = fmt.Sprintf("%s, %d times", why, p.ends), greedy, true
		}
		p.c.states[k] = s
	}
	p.refused = refused
	if p.c.cfg.Changed != nil {
		p.c.cfg.Changed()
	}
}

// why explains the end of a process, from its last words. greedy: it wanted more memory than it gets.
func why(err error, last *lastWords) (text string, greedy bool) {
	const name = "the process that restores and stores the node's volumes has ended"
	var exit *exec.ExitError
	switch {
	case strings.Contains(last.String(), "out of memory"), strings.Contains(last.String(), "cannot allocate memory"):
		return fmt.Sprintf("%s: it needs more memory than the %d MiB that a node's volumes get", name, hardMemory>>20), true
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
		return name + ": it was killed, perhaps because the host's memory is short", false
	}
	return name, false
}

// lastWords passes what a process prints on, and keeps the beginning of what may explain its end.
type lastWords struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

func (l *lastWords) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(b) {
		if bytes.Contains(line, []byte("memory")) && l.kept.Len() < 4<<10 {
			l.kept.Write(line[:min(len(line), 1<<10)])
		}
	}
	return os.Stderr.Write(b)
}

func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.String()
}

// follow sends what should be attached and takes over the answer.
func (p *process) follow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c := p.c
	c.mu.Lock()
	wanted := c.wantedOf(p.ref)
	c.mu.Unlock()
	var states []State
	if err := post(ctx, p.http, "/volumes", wanted, &states); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.cmd == nil {
		return errors.New("the process has ended meanwhile")
	}
	p.known = len(states)
	changed, restored := false, len(states) > 0
	for _, s := range states {
		k := key{p.ref, s.Volume}
		restored = restored && s.Restored
		if _, ok := c.wanted[k]; ok && c.states[k] != s {
			c.states[k], changed = s, true
		}
	}
	if restored {
		p.restored, p.ends = true, 0
	}
	if changed && c.cfg.Changed != nil {
		c.cfg.Changed()
	}
	return nil
}

// kill ends the process, if it runs, as it is.
func (p *process) kill() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
	}
}

// stop ends the process, and waits until it has.
func (p *process) stop() {
	p.c.mu.Lock()
	stdin, ended := p.stdin, p.ended
	p.c.mu.Unlock()
	if ended == nil {
		return
	}
	_ = stdin() // it may have ended
	select {
	case <-ended:
		return
	case <-time.After(endIn):
	}
	p.kill()
	<-ended
}

// end stops the process for good, and removes its folder unless a node may still be stopped.
func (p *process) end() {
	p.stop()
	err := volume.ThawAll(filepath.Join(p.dir, freezesDir))
	if err == nil {
		err = os.RemoveAll(p.dir)
	}
	if err != nil {
		p.c.cfg.Log.Error("the folder of a process for volumes is left", "lease", p.ref, "err", err)
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	delete(p.c.runs, p.ref)
	poke(p.c.kick) // it may be wanted again
}
