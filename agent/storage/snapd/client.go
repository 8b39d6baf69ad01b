package snapd

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/checkpoint"
	"github.com/musterhq/muster/agent/storage/volume"
	"github.com/musterhq/muster/agent/unixsock"
	"github.com/musterhq/muster/internal/agentapi"
)

// Config configures a Client.
type Config struct {
	Dir     string        // folder of the sockets and records, root's alone
	Command []string      // starts a process; its folder is added. Empty: this executable's snapd
	Server  volume.Server // the control plane
	Log     *slog.Logger
	Changed func() // called when a state has changed; must not block
}

// Client is the agent's side: it keeps a process running for each run that has volumes, and sends it what should be
// attached. Its methods are safe for concurrent use, and only Detach waits.
type Client struct {
	cfg  Config
	kick chan struct{}

	mu     sync.Mutex
	wanted map[key]Attached
	states map[key]State
	runs   map[agentapi.LeaseRef]*process
}

// NewClient returns a client whose Run is to be called.
func NewClient(cfg Config) *Client {
	return &Client{cfg: cfg, kick: make(chan struct{}, 1), wanted: map[key]Attached{}, states: map[key]State{},
		runs: map[agentapi.LeaseRef]*process{}}
}

// followEvery is the time between requests to a process while something is attached and nothing changes.
const followEvery = 500 * time.Millisecond

// Run keeps a process for each run that has volumes attached, until ctx ends. Nodes that a former process has stopped
// go on at once, whether or not one is started.
func (c *Client) Run(ctx context.Context) {
	if err := c.clean(); err != nil {
		c.cfg.Log.Error("the folder of the processes for volumes", "err", err)
	}
	l, err := unixsock.Listen(filepath.Join(c.cfg.Dir, serverSocket), 0o600)
	if err != nil {
		c.cfg.Log.Error("the processes for volumes cannot reach the control plane", "err", err)
		return
	}
	defer l.Close()
	go func() { _ = http.Serve(l, c.handler()) }()
	var all sync.WaitGroup
	defer all.Wait()
	for ctx.Err() == nil {
		c.mu.Lock()
		for k := range c.wanted {
			if c.runs[k.ref] == nil {
				p := newProcess(c, k.ref)
				c.runs[k.ref] = p
				all.Go(func() { p.keep(ctx) })
			}
		}
		c.mu.Unlock()
		pause(ctx, c.kick, time.Minute)
	}
}

// clean lets nodes go on that former processes have stopped, and removes the folders of those that have ended.
func (c *Client) clean() error {
	if err := os.MkdirAll(c.cfg.Dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.cfg.Dir)
	errs := []error{err, volume.ThawAll(filepath.Join(c.cfg.Dir, freezesDir))} // of an agent that had one for all runs
	for _, e := range entries {
		dir := filepath.Join(c.cfg.Dir, e.Name())
		if !e.IsDir() || e.Name() == freezesDir {
			continue
		}
		if err := volume.ThawAll(filepath.Join(dir, freezesDir)); err != nil {
			errs = append(errs, err)
			continue
		}
		if lock, err := os.Open(filepath.Join(dir, lockFile)); err == nil {
			if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
				errs = append(errs, os.RemoveAll(dir))
			}
			lock.Close()
		}
	}
	return errors.Join(errs...)
}

func pause(ctx context.Context, kick <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-kick:
	case <-ctx.Done():
	}
}

// poke makes the loops look again. Callers hold c.mu.
func (c *Client) poke(ref agentapi.LeaseRef) {
	poke(c.kick)
	if p := c.runs[ref]; p != nil {
		poke(p.kick)
	}
}

// wantedOf returns what should be attached of a run. Callers hold c.mu.
func (c *Client) wantedOf(ref agentapi.LeaseRef) []Attached {
	out := []Attached{}
	for k, a := range c.wanted {
		if k.ref == ref {
			out = append(out, a)
		}
	}
	return out
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
		c.poke(a.Ref)
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

// Detach makes the process of a run let go of its volumes and end, and waits until it has. One that does not is killed.
func (c *Client) Detach(ctx context.Context, ref agentapi.LeaseRef) error {
	c.mu.Lock()
	for k := range c.wanted {
		if k.ref == ref {
			delete(c.wanted, k)
			delete(c.states, k)
		}
	}
	p := c.runs[ref]
	c.poke(ref)
	c.mu.Unlock()
	if p == nil {
		return nil
	}
	late := time.NewTimer(detachIn)
	defer late.Stop()
	for {
		select {
		case <-p.over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			c.cfg.Log.Error("the process for volumes does not let go of a volume and is killed", "lease", ref)
			p.kill()
		}
	}
}

const detachIn = 20 * time.Second

// Checkpoint begins a checkpoint, or looks one up by its id.
func (c *Client) Checkpoint(ctx context.Context, q checkpoint.Request) (s checkpoint.State, err error) {
	c.mu.Lock()
	p := c.runs[q.Ref]
	c.mu.Unlock()
	if p == nil {
		return checkpoint.State{ID: q.ID, Stage: checkpoint.StageFailed, Code: checkpoint.CodeNotFound,
			Message: "the volume is not attached yet"}, nil
	}
	err = post(ctx, p.http, "/checkpoints", q, &s)
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
