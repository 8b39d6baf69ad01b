package container

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"github.com/musterhq/muster/internal/agentapi"
)

// Watch calls changed with the lease of every one of our containers that starts or ends, and with the zero ref
// whenever something may have been missed (at first, and after the daemon was away). It returns when ctx ends.
func (e *Engine) Watch(ctx context.Context, changed func(agentapi.LeaseRef)) {
	for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, 8*time.Second) {
		filters := e.mine().Add("type", string(events.ContainerEventType)).Add("event", "die", "start")
		stream, cancel := context.WithCancel(ctx)
		res := e.docker.Events(stream, client.EventsListOptions{Filters: filters})
		if e.Ping(stream) == nil {
			if info, err := e.docker.Info(stream, client.InfoOptions{}); err == nil {
				e.watch.survived(info.Info.LiveRestoreEnabled)
			}
			e.watch.up(time.Now())
			changed(agentapi.LeaseRef{})
			wait = time.Second
			e.follow(stream, res, changed)
			if ctx.Err() == nil { // else it is we who went away
				e.watch.down(time.Now())
			}
		}
		cancel()
		if !sleep(ctx, wait) {
			return
		}
	}
}

func (e *Engine) follow(ctx context.Context, res client.EventsResult, changed func(agentapi.LeaseRef)) {
	for {
		select {
		case m := <-res.Messages:
			epoch, err := strconv.Atoi(m.Actor.Attributes[labelEpoch])
			if err == nil {
				changed(agentapi.LeaseRef{Lease: m.Actor.Attributes[labelLease], Epoch: epoch})
			}
		case err := <-res.Err:
			if ctx.Err() == nil {
				e.cfg.Log.Warn("Docker's events ended", "err", err)
			}
			return
		case <-ctx.Done():
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// outages remembers when the daemon was away, as seen from here. The daemon closes its API before it stops containers,
// and kills what it finds running when it comes back, so an exit that nobody asked for is its doing when it falls
// between the two.
//
// With live restore it does neither: containers go on without it, and their ends are their own.
type outages struct {
	mu    sync.Mutex
	spans []span // the last few
	live  bool   // live restore is on
}

// survived notes whether containers go on without the daemon.
func (o *outages) survived(live bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.live = live
}

func (o *outages) harmless() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.live
}

type span struct{ from, to time.Time } // to is zero while it lasts

// outageSlack is how far the daemon's and our view of the time of one event may differ.
const outageSlack = 3 * time.Second

func (o *outages) down(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spans = append(o.spans, span{from: at})
	o.spans = o.spans[max(0, len(o.spans)-16):]
}

func (o *outages) up(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.spans); n > 0 && o.spans[n-1].to.IsZero() {
		o.spans[n-1].to = at
	}
}

func (o *outages) covers(t time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.spans {
		if t.After(s.from.Add(-outageSlack)) && (s.to.IsZero() || t.Before(s.to.Add(outageSlack))) {
			return true
		}
	}
	return false
}

// Interrupted reports whether a container's end coincides with the daemon's own: then it was the host's trouble,
// whatever its exit code says (a program that handles TERM exits with 0).
func (e *Engine) Interrupted(c Container) bool {
	if c.State != Exited || c.FinishedAt.IsZero() || e.watch.harmless() {
		return false
	}
	if e.watch.covers(c.FinishedAt) {
		return true
	}
	// An agent that was away itself did not see the outage: the daemon's age tells.
	started, ok := e.daemonStarted()
	return ok && c.StartedAt.Before(started) && c.FinishedAt.After(started.Add(-shutdownTime)) && c.FinishedAt.Before(started.Add(outageSlack))
}

// shutdownTime is how long before a daemon's start an exit counts as its predecessor's doing: its own limit for
// stopping containers is 15 s, and a restart takes a few more.
const shutdownTime = 30 * time.Second
