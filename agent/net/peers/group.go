package peers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"
)

// A Source is where the owner of packs gets them: the store.
type Source struct {
	// Has reports whether a pack is part of the snapshot that is restored. Others are not sent.
	Has func(n int64) bool
	// Fetch returns a whole pack whose hash was verified.
	Fetch func(ctx context.Context, n int64) ([]byte, error)
}

// A Group is the ranks that restore one volume, as one of them uses it. Its methods are safe for concurrent use.
type Group struct {
	net    *Server
	volume string
	keys   Signer
	log    *slog.Logger

	mu     sync.Mutex
	begun  time.Time
	source *Source // nil: not yet, or no more
	cache  *cache
	closed bool
	bad    map[int]*trouble
	stats  Stats
}

// Stats is where the packs of a restore came from.
type Stats struct {
	Peers int // got from other ranks
	Own   int // got from the store as one of their owners
	Alone int // got from the store because no owner sent them
	Sent  int // to other ranks
}

// trouble is what came of asking a rank.
type trouble struct {
	strikes int
	until   time.Time // it is left alone so long
}

// How a peer that fails is treated. A peer may begin to restore a moment later than this rank: until startIn after the
// beginning a peer that is not there yet is waited for.
const (
	startIn    = 8 * time.Second
	startEvery = 100 * time.Millisecond
	alone      = 30 * time.Second // after a failure, doubled with each further one
	forgiven   = 6                // doublings at most
)

// ErrNoPeer is the error of Pack if the caller must get the pack from the store itself.
var ErrNoPeer = errors.New("no peer sends the pack")

// Join prepares the restore of a volume. s may serve several volumes of one run.
func (s *Server) Join(volume string, keys Signer, log *slog.Logger) *Group {
	g := &Group{net: s, volume: volume, keys: keys, log: log, begun: time.Now(), bad: map[int]*trouble{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups[volume] = g
	return g
}

// Ranks returns how many ranks there are.
func (g *Group) Ranks() int { return len(g.net.now().Ranks) }

// Order returns packs in the order in which this rank should read them.
func (g *Group) Order(packs []int64) []int64 { return g.net.now().order(g.volume, packs) }

// Offer begins a restore: from now on packs are sent to the other ranks. Up to limit bytes of packs are kept in dir,
// which stays the caller's, until Close.
func (g *Group) Offer(s Source, dir *os.File, limit int64) {
	g.closeCache() // of an attempt before
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	g.source, g.cache, g.begun = &s, newCache(dir, limit, s.Fetch), time.Now()
}

// Close stops sending and gives up what is kept. Packs that are needed later come from the store.
func (g *Group) Close() {
	g.net.leave(g)
	g.mu.Lock()
	g.source, g.closed = nil, true
	g.mu.Unlock()
	g.closeCache()
}

// closeCache gives up what is kept, and waits for fetches, which may need the lock.
func (g *Group) closeCache() {
	g.mu.Lock()
	c := g.cache
	g.mu.Unlock()
	if c != nil {
		c.close()
	}
}

// Stats returns where packs came from so far.
func (g *Group) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stats
}

func (g *Group) count(f func(*Stats)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(&g.stats)
}

// offered returns the source and the cache; ok is false before Offer and after Close.
func (g *Group) offered() (*Source, *cache, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.source, g.cache, g.source != nil
}

// Pack returns a whole pack of a length and a hash: from one of its owners, or from the store if that is this rank.
// After an error, other than that of ctx, the caller gets it from the store itself.
func (g *Group) Pack(ctx context.Context, n, size int64, sum []byte) ([]byte, error) {
	source, kept, ok := g.offered()
	if !ok || len(sum) != sha256.Size || !source.Has(n) {
		return nil, ErrNoPeer
	}
	c := g.net.now()
	err := ErrNoPeer
	for _, rank := range c.owners(g.volume, n) {
		var b []byte
		if rank == c.Rank {
			if b, err = g.own(ctx, kept, n); err == nil {
				g.count(func(s *Stats) { s.Own++ })
			}
			return b, err
		}
		if b, err = g.request(ctx, c, rank, n, size, sum); err == nil {
			g.count(func(s *Stats) { s.Peers++ })
			return b, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	g.count(func(s *Stats) { s.Alone++ })
	return nil, err
}

func (g *Group) own(ctx context.Context, kept *cache, n int64) ([]byte, error) {
	p, err := kept.use(ctx, n)
	if err != nil {
		return nil, err
	}
	defer kept.release(p)
	return kept.content(p)
}

// request gets a pack from the rank that owns it, unless that rank is left alone.
func (g *Group) request(ctx context.Context, c Cluster, rank int, n, size int64, sum []byte) ([]byte, error) {
	addr, ok := c.of(rank)
	if !ok || g.avoided(rank) {
		return nil, ErrNoPeer
	}
	for {
		b, err := g.net.get(ctx, addr, g.volume, n, size, g.keys)
		if err == nil && !verified(b, sum) {
			err = fmt.Errorf("%w: not what is in the store", errLied)
		}
		switch {
		case err == nil:
			g.trust(rank)
			return b, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, errNotYet) && g.starting() && !g.avoided(rank):
			select {
			case <-time.After(startEvery):
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		g.avoid(rank, err)
		return nil, errors.Join(ErrNoPeer, err)
	}
}

func verified(b, sum []byte) bool {
	got := sha256.Sum256(b)
	return bytes.Equal(got[:], sum)
}

func (g *Group) starting() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Since(g.begun) < startIn
}

func (g *Group) avoided(rank int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.bad[rank]
	return t != nil && time.Now().Before(t.until)
}

func (g *Group) trust(rank int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.bad[rank]; t != nil && !time.Now().Before(t.until) {
		delete(g.bad, rank)
	}
}

// avoid leaves a rank alone. One that lied is not asked again in this restore.
func (g *Group) avoid(rank int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.bad[rank]
	if t == nil {
		t = &trouble{}
		g.bad[rank] = t
	}
	if time.Now().Before(t.until) {
		return // another pack failed at the same time
	}
	t.until = time.Now().Add(alone << min(t.strikes, forgiven))
	if errors.Is(err, errLied) {
		t.until = time.Now().Add(24 * time.Hour)
	}
	t.strikes++
	g.log.Info("packs of a volume come from the store for a while, as a rank does not send them", "volume", g.volume,
		"rank", rank, "err", err)
}

// send answers the request for a pack.
func (g *Group) send(w http.ResponseWriter, r *http.Request, n int64) {
	source, kept, ok := g.offered()
	switch {
	case !ok:
		http.Error(w, "nothing is restored here now", http.StatusServiceUnavailable)
		return
	case !source.Has(n):
		http.Error(w, "the snapshot has no such pack", http.StatusNotFound)
		return
	}
	if g.net.answer(w, r, kept, n) {
		g.count(func(s *Stats) { s.Sent++ })
	}
}
