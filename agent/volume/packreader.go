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

	"github.com/musterhq/muster/agent/peers"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

// A packReader reads chunks of packs.
type packReader struct {
	remote *remote
	keys   *chunk.Keys
	peers  *peers.Group // nil: all packs come from the store

	mu   sync.Mutex
	urls map[int64]agentapi.PackURL
	last *openedPack // for the manifest, whose chunks lie together

	buffers sync.Pool // of *[]byte, for whole packs: a new one takes as long to clear as a pack to open
}

func newPackReader(r *remote, k *chunk.Keys) *packReader {
	return &packReader{remote: r, keys: k, urls: map[int64]agentapi.PackURL{}}
}

// openedPack is a pack in memory, or one that is read by ranges.
type openedPack struct {
	n     int64
	from  *packReader
	bytes []byte // nil: by ranges
	// own: bytes are of the reader's buffers, and chunks are opened where they lie, each once in a row.
	own bool
}

// release lets the pack's buffer be used again. Chunks of the pack must not be used any more.
func (o *openedPack) release() {
	if b := o.bytes; o.own {
		o.from.buffers.Put(&b)
	}
	o.bytes, o.own = nil, false
}

// open reads a pack whole if a quarter of it is needed. The chunks are requested in their order, and the pack is
// released afterwards.
func (p *packReader) open(ctx context.Context, pieces []piece) (*openedPack, error) {
	need := int64(0)
	for i, x := range pieces {
		if i == 0 || x.ref != pieces[i-1].ref {
			need += int64(x.ref.Length)
		}
	}
	return p.openPack(ctx, pieces[0].ref.Pack, need, true)
}

func (p *packReader) openPack(ctx context.Context, n, need int64, once bool) (*openedPack, error) {
	o := &openedPack{n: n, from: p}
	u, err := p.url(ctx, n)
	if err != nil {
		return o, err
	}
	// Ranks that need a little of a pack load the store with less if one of them gets all of it once.
	if p.peers != nil && need*int64(p.peers.Ranks()) >= u.Bytes {
		if o.bytes, err = p.peers.Pack(ctx, n, u.Bytes, u.SHA256); err == nil {
			return o, nil
		}
		if ctx.Err() != nil {
			return o, ctx.Err()
		}
		o.bytes = nil
	}
	if need >= u.Bytes/4 {
		var buf []byte
		if b, ok := p.buffers.Get().(*[]byte); ok && once {
			buf = *b
		}
		o.own = once
		o.bytes, err = p.get(ctx, buf, n, 0, 0)
	}
	return o, err
}

// fetch returns a whole pack from the store, as it was stored, for the ranks that get it from this one.
func (p *packReader) fetch(ctx context.Context, n int64) ([]byte, error) {
	u, err := p.url(ctx, n)
	if err != nil {
		return nil, err
	}
	b, err := p.get(ctx, nil, n, 0, 0)
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

// url returns a URL to read a pack.
func (p *packReader) url(ctx context.Context, n int64) (agentapi.PackURL, error) {
	p.mu.Lock()
	u, ok := p.urls[n]
	p.mu.Unlock()
	if ok {
		return u, nil
	}
	reply, err := p.remote.call(ctx, agentapi.VolumeRequest{Op: agentapi.VolumeRead,
		Read: &agentapi.ReadPacks{Packs: []int64{n}}})
	if err != nil {
		return u, err
	}
	if reply.Read == nil || len(reply.Read.Packs) != 1 || reply.Read.Packs[0].N != n {
		return u, errors.New("the server answers a read with something else")
	}
	u = reply.Read.Packs[0]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.urls[n] = u
	return u, nil
}

// readTries is how often a pack is read that does not come, or not whole.
const readTries = 8

// get reads from the store until it answers, into buf if that is large enough.
func (p *packReader) get(ctx context.Context, buf []byte, n, from, length int64) (b []byte, err error) {
	tries := 0
	err = p.remote.retry(ctx, fromStore, func() (time.Duration, error) {
		u, err := p.url(ctx, n)
		if err != nil {
			return 0, err
		}
		if b, err = p.remote.read(ctx, buf, u, from, length); err == nil {
			return 0, nil
		}
		p.mu.Lock()
		delete(p.urls, n)
		p.mu.Unlock()
		if tries++; tries == readTries {
			return 0, &lostError{n, err}
		}
		return 0, err
	})
	return b, err
}

// chunk returns a chunk of the manifest.
func (p *packReader) chunk(ctx context.Context, r manifest.Ref) ([]byte, error) {
	if p.last == nil || p.last.n != r.Pack {
		o, err := p.openPack(ctx, r.Pack, chunk.PackSize, false)
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
		err = fmt.Errorf("the store has other bytes in pack %d than were stored: %w", o.n, err)
	}
	return b, err
}

func (o *openedPack) chunkOnce(ctx context.Context, r manifest.Ref) ([]byte, error) {
	blob := []byte(nil)
	if o.bytes == nil {
		var err error
		if blob, err = o.from.get(ctx, nil, o.n, int64(r.Offset), int64(r.Length)); err != nil {
			return nil, err
		}
	} else {
		end := int64(r.Offset) + int64(r.Length)
		if end > int64(len(o.bytes)) {
			return nil, chunk.ErrCorrupt
		}
		blob = o.bytes[r.Offset:end]
	}
	open := o.from.keys.Open
	if o.own || o.bytes == nil {
		open = o.from.keys.OpenInPlace
	}
	b, err := open(r.ID, blob)
	if err == nil && len(b) != int(r.Size) {
		err = chunk.ErrCorrupt
	}
	return b, err
}
