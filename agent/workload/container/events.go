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

// Watch calls changed with the lease of every one of this agent's containers that starts or ends, and with the zero ref
// whenever events may have been missed (at first, and when the daemon stops or resumes answering). It returns when ctx
// ends.
func (e *Engine) Watch(ctx context.Context, changed func(agentapi.LeaseRef)) {
	var beats sync.WaitGroup
	defer beats.Wait()
	lost := make(chan struct{}, 1) // the stream of events has ended: look at once
	beats.Go(func() { e.beats(ctx, lost, func() { changed(agentapi.LeaseRef{}) }) })
	for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, 8*time.Second) {
		filters := e.mine().Add("type", string(events.ContainerEventType)).Add("event", "die", "start")
		stream, cancel := context.WithCancel(ctx)
		res := e.docker.Events(stream, client.EventsListOptions{Filters: filters})
		if e.Ping(stream) == nil {
			if info, err := e.docker.Info(stream, client.InfoOptions{}); err == nil {
				e.watch.survived(info.Info.LiveRestoreEnabled)
			}
			changed(agentapi.LeaseRef{})
			wait = time.Second
			e.follow(stream, res, changed)
			select {
			case lost <- struct{}{}:
			default:
			}
		}
		cancel()
		if !sleep(ctx, wait) {
			return
		}
	}
}

// beats pings the daemon until ctx ends, and calls changed when the daemon stops or resumes answering.
func (e *Engine) beats(ctx context.Context, lost <-chan struct{}, changed func()) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		other, err := e.beat(ctx)
		if other {
			if err != nil {
				e.cfg.Log.Warn("the container engine does not answer", "err", err)
			} else {
				e.cfg.Log.Info("the container engine answers again")
			}
			changed()
		}
		select {
		case <-tick.C:
		case <-lost:
		case <-ctx.Done():
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
