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
func (m *images) prefetchLoop(ctx context.Context) {
	looked := map[string]time.Time{}
	for pause(ctx, prefetchLook, m.fetch) {
		m.mu.Lock()
		popular := m.popular
		m.mu.Unlock()
		for _, ref := range popular {
			if m.runs.leased() || ctx.Err() != nil {
				break
			}
			if at, ok := looked[ref]; ok && m.now().Sub(at) < prefetchEvery {
				continue
			}
			if m.prefetch(ctx, ref) {
				looked[ref] = m.now()
			}
		}
	}
}

// prefetch fetches one image, or finds that it is there. It reports whether the attempt is finished, successful or not;
// a fetch that a lease has cancelled, or for which the line's data cap leaves no room, is not finished.
func (m *images) prefetch(ctx context.Context, ref string) bool {
	line, bounded := m.lineRoom()
	if bounded && line <= 0 {
		return false
	}
	room, err := m.prefetchRoom()
	if err != nil || room <= 0 {
		m.log.Debug("no room to fetch a popular image", "image", ref, "err", err)
		return true
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for pause(ctx, time.Second, nil) {
			if m.runs.leased() {
				cancel()
			}
		}
	}()
	img, err := m.puller.Pull(ctx, image.Request{
		Image:    ref,
		MaxBytes: room,
		MaxFetch: line,
	}, func(agentapi.Progress) {})
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		m.log.Info("a popular image was not fetched", "image", ref, "err", err)
	default:
		m.log.Info("a popular image is here", "image", ref, "digest", img.Digest, "bytes", img.Bytes)
		m.report()
	}
	return true
}

// popularBound limits how many bytes of popular images may come over the host's line.
type popularBound struct {
	bytes int64 // limit in bytes from the server's last answer; 0 = none
	from  int64 // bytes of images the host had received then
}

// lineRoom returns how many bytes of popular images may come over the host's line now, and whether there is a limit.
func (m *images) lineRoom() (left int64, bounded bool) {
	received := int64(0)
	if m.received != nil {
		received = m.received()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bound.bytes == 0 {
		return 0, false
	}
	now := m.pulls.sum.Bytes + max(received-m.pulls.read, 0)
	return m.bound.bytes - max(now-m.bound.from, 0), true
}

// prefetchRoom returns how many bytes an image may have to be fetched ahead of time.
func (m *images) prefetchRoom() (int64, error) {
	free, err := m.puller.Free()
	if err != nil {
		return 0, err
	}
	var held int64
	for _, i := range m.puller.Cached() {
		held += i.Bytes
	}
	return (free+held)/prefetchShare - held, nil
}

// takePopular records which images are popular and how many bytes of them may be fetched.
func (m *images) takePopular(reply agentapi.SyncReply) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// Bytes that the server does not know of yet are subtracted from its limit.
	m.bound = popularBound{reply.PopularBytes, m.pulls.reported.Bytes}
	if !slices.Equal(m.popular, reply.Popular) {
		m.popular = reply.Popular
		poke(m.fetch)
	}
}
