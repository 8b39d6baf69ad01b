package volume

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/net/peers"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

// A packReader reads chunks of packs.
type packReader struct {
	remote *remote
	keys   *chunk.Keys
	peers  *peers.Group // nil: all packs come from the store

	mu    sync.Mutex
	urls  map[int64]agentapi.PackURL
	order []int64       // in which the packs will be read
	at    map[int64]int // where a pack is in the order
	last  *openedPack   // for the manifest, whose chunks lie together
	blobs sync.Pool     // of *[]byte, each of the size of the largest blob
}

func newPackReader(r *remote, k *chunk.Keys) *packReader {
	return &packReader{remote: r, keys: k, urls: map[int64]agentapi.PackURL{},
		blobs: sync.Pool{New: func() any { b := make([]byte, chunk.MaxSize+chunk.Overhead); return &b }}}
}

// will notes in which order packs will be read, so that signed requests for them are fetched ahead.
func (p *packReader) will(order []int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.order, p.at = order, make(map[int64]int, len(order))
	for i, n := range order {
		p.at[n] = i
	}
}

// each calls f with each chunk that pieces of one pack need, and the pieces that have it. Their order is the pieces',
// except for chunks that had to be read again. The chunk may be used until f returns.
func (p *packReader) each(ctx context.Context, pieces []piece, f func(pieces []piece, b []byte) error) error {
	need := int64(0)
	var chunks [][]piece
	for from := 0; from < len(pieces); {
		to := from + 1
		for to < len(pieces) && pieces[to].ref == pieces[from].ref {
			to++
		}
		need += int64(pieces[from].ref.Length)
		chunks, from = append(chunks, pieces[from:to]), to
	}
	n := pieces[0].ref.Pack
	u, err := p.url(ctx, n)
	if err != nil {
		return err
	}
	o := &openedPack{n: n, from: p}
	// Ranks that need a little of a pack load the store with less if one of them gets all of it once.
	if p.peers != nil && need*int64(p.peers.Ranks()) >= u.Bytes {
		if o.bytes, err = p.peers.Pack(ctx, n, u.Bytes, u.SHA256); err != nil {
			o.bytes = nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if o.bytes == nil && need >= u.Bytes/4 {
		s := stream{from: p, n: n, chunks: chunks, each: f}
		if err := s.run(ctx); err != nil {
			return err
		}
		chunks = s.again
	}
	for _, c := range chunks {
		b, err := o.chunk(ctx, c[0].ref)
		if err == nil {
			err = f(c, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A stream reads the chunks of a pack as they arrive, with one request unless it is cut off. A chunk is opened,
// verified and passed on while it is in the processor's cache, and no memory is needed for a whole pack.
type stream struct {
	from   *packReader
	n      int64
	chunks [][]piece
	each   func(pieces []piece, b []byte) error

	next   int       // those before it are done
	again  [][]piece // those whose bytes were not what was stored
	failed error     // of each, or for good
}

func (s *stream) run(ctx context.Context) error {
	tries := 0
	err := s.from.remote.retry(ctx, fromStore, func() (time.Duration, error) {
		before := s.next
		err := s.once(ctx)
		if err == nil || s.failed != nil {
			return 0, nil
		}
		s.from.forget(s.n)
		if tries++; s.next > before {
			tries = 0
		}
		if tries == readTries {
			return 0, &lostError{s.n, err}
		}
		return 0, err
	})
	return errors.Join(s.failed, err)
}

// once reads what is not done yet, with one request.
func (s *stream) once(ctx context.Context) error {
	u, err := s.from.url(ctx, s.n)
	if err != nil {
		return err
	}
	at, to := int64(s.chunks[s.next][0].ref.Offset), int64(0)
	for _, c := range s.chunks[s.next:] {
		to = max(to, int64(c[0].ref.Offset)+int64(c[0].ref.Length))
	}
	if to > u.Bytes {
		s.failed = other(s.n)
		return s.failed
	}
	done, err := s.from.remote.waitTurn(ctx)
	if err != nil {
		return err
	}
	defer done()
	a, err := s.from.remote.request(ctx, u, at, to-at, to-at)
	if err != nil {
		return err
	}
	defer a.Close()
	kept := s.from.blobs.Get().(*[]byte)
	defer s.from.blobs.Put(kept)
	for buf := *kept; s.next < len(s.chunks); s.next++ {
		c := s.chunks[s.next]
		r := c[0].ref
		if int64(r.Offset) < at || int(r.Length) > len(buf) { // malformed: reading it alone says so
			s.again = append(s.again, c)
			continue
		}
		for at < int64(r.Offset) {
			skipped := buf[:min(int64(len(buf)), int64(r.Offset)-at)]
			if err := a.Full(skipped); err != nil {
				return err
			}
			at += int64(len(skipped))
		}
		blob := buf[:r.Length]
		if err := a.Full(blob); err != nil {
			return err
		}
		at += int64(len(blob))
		b, err := opened(s.from.keys.OpenInPlace, r, blob)
		if errors.Is(err, chunk.ErrCorrupt) {
			s.again = append(s.again, c)
			continue
		}
		if err == nil {
			err = s.each(c, b)
		}
		if s.failed = err; err != nil {
			return err
		}
	}
	return nil
}

// opened returns the chunk of a blob.
func opened(open func(chunk.ID, []byte) ([]byte, error), r manifest.Ref, blob []byte) ([]byte, error) {
	b, err := open(r.ID, blob)
	if err == nil && len(b) != int(r.Size) {
		err = chunk.ErrCorrupt
	}
	return b, err
}

// other is the error of a pack whose bytes are not those that were stored.
func other(n int64) error {
	return fmt.Errorf("the store has other bytes in pack %d than were stored: %w", n, chunk.ErrCorrupt)
}

// fetch returns a whole pack from the store, as it was stored, for the ranks that get it from this one.
func (p *packReader) fetch(ctx context.Context, n int64) ([]byte, error) {
	u, err := p.url(ctx, n)
	if err != nil {
		return nil, err
	}
	done, err := p.remote.waitTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	b, err := p.get(ctx, n, 0, 0)
	if sum := sha256.Sum256(b); err == nil && !bytes.Equal(sum[:], u.SHA256) {
		err = fmt.Errorf("pack %d: %w", n, chunk.ErrCorrupt)
	}
	return b, err
}

// maxKept limits what a restore keeps on the disk for the other ranks, in bytes. What the volume's own files need has
// precedence.
const maxKept = 4 << 30

// offer lets the other ranks get packs from this one.
func (v *Volume) offer(p *packReader) error {
	if v.cfg.Peers == nil {
		return nil
	}
	packs, err := manifest.DecodePackSet(v.base.Packs)
	if err != nil {
		return fmt.Errorf("read the set of its packs: %w", err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(v.cutDir.Fd()), &st); err != nil {
		return fmt.Errorf("look at the volume's room: %w", err)
	}
	room := (int64(st.Bavail)*st.Bsize - v.base.LogicalBytes) / 2
	p.peers = v.cfg.Peers
	p.peers.Offer(peers.Source{Has: packs.Has, Fetch: p.fetch}, v.cutDir, min(maxKept, max(0, room)))
	return nil
}

// signedAtOnce is for how many packs signed requests are fetched together: those that follow in the order.
const signedAtOnce = 16

// freshFor is how much longer a signed request must hold to be used.
const freshFor = time.Minute

// url returns a URL to read a pack.
func (p *packReader) url(ctx context.Context, n int64) (agentapi.PackURL, error) {
	p.mu.Lock()
	u, ok := p.urls[n]
	if ok && fresh(u) {
		p.mu.Unlock()
		return u, nil
	}
	packs := p.following(n)
	p.mu.Unlock()
	reply, err := p.remote.call(ctx, agentapi.VolumeRequest{Op: agentapi.VolumeRead,
		Read: &agentapi.ReadPacks{Packs: packs}})
	if err != nil {
		return u, err
	}
	if reply.Read == nil || len(reply.Read.Packs) == 0 || reply.Read.Packs[0].N != n {
		return u, errors.New("the server answers a read with something else")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range reply.Read.Packs {
		p.urls[u.N] = u
	}
	return p.urls[n], nil
}

func fresh(u agentapi.PackURL) bool {
	return u.UntilMS == 0 || time.UnixMilli(u.UntilMS).After(time.Now().Add(freshFor))
}

// following returns n and packs that will be read after it, whose requests are not here yet. Callers hold p.mu.
func (p *packReader) following(n int64) []int64 {
	out := []int64{n}
	i, ok := p.at[n]
	if !ok {
		return out
	}
	for _, next := range p.order[i+1:] {
		if len(out) == signedAtOnce {
			break
		}
		if u, ok := p.urls[next]; !ok || !fresh(u) {
			out = append(out, next)
		}
	}
	return out
}

func (p *packReader) forget(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.urls, n)
}

// readTries is how often a pack is read that does not come, or not whole.
const readTries = 8

// get reads from the store until it answers.
func (p *packReader) get(ctx context.Context, n, from, length int64) (b []byte, err error) {
	tries := 0
	err = p.remote.retry(ctx, fromStore, func() (time.Duration, error) {
		u, err := p.url(ctx, n)
		if err != nil {
			return 0, err
		}
		if b, err = p.remote.read(ctx, u, from, length); err == nil {
			return 0, nil
		}
		p.forget(n)
		if tries++; tries == readTries {
			return 0, &lostError{n, err}
		}
		return 0, err
	})
	return b, err
}

// openedPack is a pack in memory, or one that is read by ranges.
type openedPack struct {
	n     int64
	from  *packReader
	bytes []byte // nil: by ranges
}

// chunk returns a chunk of the manifest.
func (p *packReader) chunk(ctx context.Context, r manifest.Ref) ([]byte, error) {
	if p.last == nil || p.last.n != r.Pack {
		o := &openedPack{n: r.Pack, from: p}
		u, err := p.url(ctx, r.Pack)
		if err == nil && p.peers != nil {
			if o.bytes, err = p.peers.Pack(ctx, r.Pack, u.Bytes, u.SHA256); err != nil {
				o.bytes, err = nil, ctx.Err()
			}
		}
		if err == nil && o.bytes == nil {
			o.bytes, err = p.get(ctx, r.Pack, 0, 0)
		}
		if err != nil {
			return nil, err
		}
		p.last = o
	}
	return p.last.chunk(ctx, r)
}

// chunk returns a chunk. One whose bytes are not those that were stored is read again once, in case the line or a cache
// before the store has changed them.
func (o *openedPack) chunk(ctx context.Context, r manifest.Ref) ([]byte, error) {
	b, err := o.chunkOnce(ctx, r)
	if errors.Is(err, chunk.ErrCorrupt) {
		again := openedPack{n: o.n, from: o.from}
		b, err = again.chunkOnce(ctx, r)
	}
	if errors.Is(err, chunk.ErrCorrupt) {
		err = other(o.n)
	}
	return b, err
}

func (o *openedPack) chunkOnce(ctx context.Context, r manifest.Ref) ([]byte, error) {
	if o.bytes == nil {
		blob, err := o.from.get(ctx, o.n, int64(r.Offset), int64(r.Length))
		if err != nil {
			return nil, err
		}
		return opened(o.from.keys.OpenInPlace, r, blob)
	}
	end := int64(r.Offset) + int64(r.Length)
	if end > int64(len(o.bytes)) {
		return nil, chunk.ErrCorrupt
	}
	return opened(o.from.keys.Open, r, o.bytes[r.Offset:end])
}
