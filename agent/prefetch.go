package agent

import (
	"context"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/workload/image"
	"github.com/musterhq/muster/internal/agentapi"
)

const (
	// prefetchEvery is how often each popular image is checked again: its name may have moved to another image by then,
	// and an image that was checked is not cleaned away.
	prefetchEvery = 24 * time.Hour
	prefetchLook  = 10 * time.Minute // time between checks for something to fetch
	prefetchShare = 4                // public images take at most 1/prefetchShare of the free space
)

// prefetchLoop fetches popular images while nothing is leased, one at a time. A new lease cancels the present fetch:
// the host's line is for the renter.
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

// prefetch fetches one image, or finds that it is there. It reports whether the attempt is finished, successful or not;
// a fetch that a lease has cancelled, or for which the line's data cap leaves no room, is not finished.
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

// popularBound limits how many bytes of popular images may come over the host's line.
type popularBound struct {
	bytes int64 // limit in bytes from the server's last answer; 0 = none
	from  int64 // bytes of images the host had received then
}

// takePopular records which images are popular and how many bytes of them may be fetched.
func (a *Agent) takePopular(s agentapi.Sync, reply agentapi.SyncReply) {
	if len(s.Leases) > 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// Bytes that the server does not know of yet are subtracted from its limit.
	a.bound = popularBound{reply.PopularBytes, a.pulls.reported.Bytes}
	if !slices.Equal(a.popular, reply.Popular) {
		a.popular = reply.Popular
		poke(a.fetch)
	}
}

// lineRoom returns how many bytes of popular images may come over the host's line now, and whether there is a limit.
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

// prefetchRoom returns how many bytes an image may have to be fetched ahead of time.
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
