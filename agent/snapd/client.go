package snapd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/musterhq/muster/agent/checkpoint"
	"github.com/musterhq/muster/agent/unixsock"
	"github.com/musterhq/muster/agent/volume"
	"github.com/musterhq/muster/internal/agentapi"
)

// Config configures a Client.
type Config struct {
	Dir     string        // folder of the sockets and records, root's alone
	Command []string      // starts the process; the folder is added. Empty: this executable's snapd
	Server  volume.Server // the control plane
	Log     *slog.Logger
	Changed func() // called when a state has changed; must not block
}

// Client is the agent's side: it keeps the process running and sends it what should be attached. Its methods are safe
// for concurrent use, and only Detach waits.
type Client struct {
	cfg  Config
	http *http.Client
	kick chan struct{}

	mu     sync.Mutex
	wanted map[key]Attached
	states map[key]State
	known  map[key]bool // in the last answer
	cmd    *exec.Cmd
}

// NewClient returns a client whose Run is to be called.
func NewClient(cfg Config) *Client {
	c := &Client{cfg: cfg, kick: make(chan struct{}, 1), wanted: map[key]Attached{}, states: map[key]State{},
		known: map[key]bool{}}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return unixsock.Dial(ctx, filepath.Join(cfg.Dir, controlSocket))
		},
	}}
	return c
}

// followEvery is the time between requests to the process while something is attached and nothing changes.
const followEvery = 500 * time.Millisecond

// Run keeps the process while volumes are attached, until ctx ends. Nodes that a former process has stopped go on at
// once, whether or not one is started.
func (c *Client) Run(ctx context.Context) {
	err := errors.Join(os.MkdirAll(c.cfg.Dir, 0o700), volume.ThawAll(filepath.Join(c.cfg.Dir, freezesDir)))
	if err != nil {
		c.cfg.Log.Error("the folder of the process for volumes", "err", err)
	}
	l, err := unixsock.Listen(filepath.Join(c.cfg.Dir, serverSocket), 0o600)
	if err != nil {
		c.cfg.Log.Error("the process for volumes cannot reach the control plane", "err", err)
		return
	}
	defer l.Close()
	go func() { _ = http.Serve(l, c.handler()) }()
	var process sync.WaitGroup
	defer process.Wait()
	for ctx.Err() == nil {
		c.mu.Lock()
		idle, started := len(c.wanted) == 0 && len(c.known) == 0, c.cmd != nil
		c.mu.Unlock()
		switch {
		case idle && !started:
			c.pause(ctx, time.Minute)
			continue
		case !started:
			if err := c.start(ctx, &process); err != nil {
				c.cfg.Log.Error("the process for volumes cannot be started", "err", err)
				c.pause(ctx, 5*time.Second)
				continue
			}
		}
		if err := c.follow(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Log.Debug("the process for volumes does not answer", "err", err)
		}
		c.pause(ctx, followEvery)
	}
}

func (c *Client) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.kick:
	case <-ctx.Done():
	}
}

// start starts the process. It ends with the pipe to its standard input: with ctx, or with this process, however that
// ends.
func (c *Client) start(ctx context.Context, process *sync.WaitGroup) error {
	argv := c.cfg.Command
	if len(argv) == 0 {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		argv = []string{self, "snapd"}
	}
	cmd := exec.Command(argv[0], append(argv[1:len(argv):len(argv)], c.cfg.Dir)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is the agent's to handle
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the process for volumes: %w", err)
	}
	c.mu.Lock()
	c.cmd = cmd
	c.mu.Unlock()
	ended := make(chan struct{})
	process.Go(func() {
		err := cmd.Wait()
		close(ended)
		if ctx.Err() == nil {
			c.cfg.Log.Warn("the process for volumes ended and is started again", "err", err)
		}
		c.mu.Lock()
		c.cmd, c.known = nil, map[key]bool{}
		for k, s := range c.states { // nothing is attached in the next one
			if s.Restored = false; !s.Closed {
				c.states[k] = s
			}
		}
		c.mu.Unlock()
		poke(c.kick)
	})
	process.Go(func() {
		select {
		case <-ctx.Done():
		case <-ended:
		}
		in.Close()
	})
	return nil
}

// follow sends what should be attached and takes over the answer.
func (c *Client) follow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c.mu.Lock()
	wanted := make([]Attached, 0, len(c.wanted))
	for _, a := range c.wanted {
		wanted = append(wanted, a)
	}
	c.mu.Unlock()
	var states []State
	if err := post(ctx, c.http, "/volumes", wanted, &states); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = map[key]bool{}
	changed := false
	for _, s := range states {
		k := key{s.Ref, s.Volume}
		c.known[k] = true
		if _, ok := c.wanted[k]; ok && c.states[k] != s {
			c.states[k], changed = s, true
		}
	}
	if changed && c.cfg.Changed != nil {
		c.cfg.Changed()
	}
	return nil
}

// Want attaches a volume, or changes how it should be attached.
func (c *Client) Want(a Attached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := key{a.Ref, a.Mount.Volume}
	old, ok := c.wanted[k]
	c.wanted[k] = a
	if !ok || old.PID != a.PID || old.Ended != a.Ended || old.Notice != a.Notice || old.Announced != a.Announced ||
		(old.Peers == nil) != (a.Peers == nil) || old.Mount.SnapshotNow != a.Mount.SnapshotNow {
		poke(c.kick)
	}
}

// Wanted returns what was wanted last of a volume; ok is false if nothing, as after a restart of the agent.
func (c *Client) Wanted(ref agentapi.LeaseRef, vol string) (a Attached, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok = c.wanted[key{ref, vol}]
	return a, ok
}

// State returns how a volume is, as last seen.
func (c *Client) State(ref agentapi.LeaseRef, vol string) State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.states[key{ref, vol}]
}

// Detach makes the process let go of all volumes of a run, and waits until it has. A process that does not is ended:
// the next one attaches the others again.
func (c *Client) Detach(ctx context.Context, ref agentapi.LeaseRef) error {
	c.mu.Lock()
	for k := range c.wanted {
		if k.ref == ref {
			delete(c.wanted, k)
			delete(c.states, k)
		}
	}
	c.mu.Unlock()
	deadline := time.Now().Add(detachIn)
	for {
		poke(c.kick)
		c.mu.Lock()
		held, cmd := false, c.cmd
		for k := range c.known {
			held = held || k.ref == ref
		}
		c.mu.Unlock()
		if !held {
			return nil
		}
		if cmd != nil && time.Now().After(deadline) {
			c.cfg.Log.Error("the process for volumes does not let go of a volume and is ended", "lease", ref)
			_ = cmd.Process.Kill()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

const detachIn = 20 * time.Second

// Checkpoint begins a checkpoint, or looks one up by its id.
func (c *Client) Checkpoint(ctx context.Context, q checkpoint.Request) (s checkpoint.State, err error) {
	err = post(ctx, c.http, "/checkpoints", q, &s)
	return s, err
}

// handler passes requests of the process on to the control plane.
func (c *Client) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /volume", func(w http.ResponseWriter, r *http.Request) {
		var q agentapi.VolumeRequest
		b, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
		if err == nil {
			err = json.Unmarshal(b, &q)
		}
		var reply agentapi.VolumeReply
		if err == nil {
			reply, err = c.cfg.Server(r.Context(), q)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_ = json.NewEncoder(w).Encode(reply)
	})
	return mux
}
