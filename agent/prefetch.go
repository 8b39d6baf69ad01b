package agent

import (
	"context"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/image"
	"github.com/musterhq/muster/internal/agentapi"
)

const (
	// prefetchEvery is how often each popular image is looked at anew: its name may mean another by then, and one that was
	// looked at is not cleaned away.
	prefetchEvery = 24 * time.Hour
	prefetchLook  = 10 * time.Minute // how often it is asked whether there is something to do
	prefetchShare = 4                // public images take up to one part in so many of what is free
)

// prefetchLoop fetches popular images while nothing is leased, one at a time. A lease that comes ends a fetch under
// way: the line is the renter's.
func (a *Agent) prefetchLoop(ctx context.Context) {
	if !a.cfg.Prefetch {
		return
	}
	looked := map[string]time.Time{}
	for pause(ctx, prefetchLook, a.fetch) {
		a.mu.Lock()
		popular := a.popular
		a.mu.Unlock()
		for _, ref := range popular {
			if a.leased() || ctx.Err() != nil {
				break
			}
			if at, ok := looked[ref]; ok && a.cfg.Now().Sub(at) < prefetchEvery {
				continue
			}
			if a.prefetch(ctx, ref) {
				looked[ref] = a.cfg.Now()
			}
		}
	}
}

// prefetch fetches one image, or sees that it is there, and reports whether that is done with, well or not; a fetch
// that a lease has ended, or that the line's data cap leaves no room for, is not.
func (a *Agent) prefetch(ctx context.Context, ref string) bool {
	line, bounded := a.lineRoom()
	if bounded && line <= 0 {
		return false
	}
	room, err := a.prefetchRoom()
	if err != nil || room <= 0 {
		a.log.Debug("no room to fetch a popular image", "image", ref, "err", err)
		return true
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for pause(ctx, time.Second, nil) {
			if a.leased() {
				cancel()
			}
		}
	}()
	img, err := a.cfg.Images.Pull(ctx, image.Request{
		Image:    ref,
		MaxBytes: room,
		MaxFetch: line,
	}, func(agentapi.Progress) {})
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		a.log.Info("a popular image was not fetched", "image", ref, "err", err)
	default:
		a.log.Info("a popular image is here", "image", ref, "digest", img.Digest, "bytes", img.Bytes)
		a.reportImages()
	}
	return true
}

// popularBound is how much of popular images may come over the host's line.
type popularBound struct {
	bytes int64 // as the server said last; 0 = any
	from  int64 // what the host had received of images then
}

// takePopular notes which images are popular and how much may be fetched of them.
func (a *Agent) takePopular(s agentapi.Sync, reply agentapi.SyncReply) {
	if len(s.Leases) > 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// What the server does not know of yet is taken off what it says.
	a.bound = popularBound{reply.PopularBytes, a.pulls.reported.Bytes}
	if !slices.Equal(a.popular, reply.Popular) {
		a.popular = reply.Popular
		poke(a.fetch)
	}
}

// lineRoom is how much of popular images may come over the host's line now, and whether that is bounded.
func (a *Agent) lineRoom() (left int64, bounded bool) {
	received := int64(0)
	if a.cfg.Received != nil {
		received = a.cfg.Received()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bound.bytes == 0 {
		return 0, false
	}
	now := a.pulls.sum.Bytes + max(received-a.pulls.read, 0)
	return a.bound.bytes - max(now-a.bound.from, 0), true
}

// prefetchRoom is how many bytes an image may have to be fetched ahead of time.
func (a *Agent) prefetchRoom() (int64, error) {
	free, err := a.cfg.Images.Free()
	if err != nil {
		return 0, err
	}
	var held int64
	for _, i := range a.cfg.Images.Cached() {
		held += i.Bytes
	}
	return (free+held)/prefetchShare - held, nil
}
