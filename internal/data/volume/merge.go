package volume

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// merged is the tree of a round, whose directories are stored.
type merged struct {
	manifest.Merged
	packs *manifest.PackSet // that were stored for it
}

// mergeTime is how long one merge may take: a host waits for the answer. What it has read by then is read again.
const mergeTime = 20 * time.Second

// mergesAtOnce is how many merges run at the same time on a replica: each takes up to manifest.MaxMergeBytes of memory.
// mergesPerOrg is how many of them are of one organisation, so that none keeps the others from theirs.
const (
	mergesAtOnce = 4
	mergesPerOrg = 2
)

// merge makes one tree of the shards of a round. It reads directories, and writes those that are of several ranks.
func (rs *rounds) merge(ctx context.Context, x dbq.DataSession, r *round) (merged, error) {
	ctx, cancel := context.WithTimeout(ctx, mergeTime)
	defer cancel()
	d, err := rs.d.Q.DomainOfVolume(ctx, x.VolumeID)
	if err != nil {
		return merged{}, fmt.Errorf("data domain of %s: %w", x.VolumeID, err)
	}
	leave, err := rs.merges.Take(ctx, d.OrgID)
	if err != nil {
		return merged{}, fmt.Errorf("wait for other merges: %w", err)
	}
	defer leave()
	keys, err := openKeys(rs.box, d.ID, d.KeySealed)
	if err != nil {
		return merged{}, err
	}
	in := &packCache{rs: rs, domain: d.ID, keys: keys, packs: map[int64][]byte{}}
	out := &packWriter{rs: rs, ctx: ctx, x: x, keys: keys, packs: manifest.NewPackSet()}
	m := manifest.Merger{Reader: manifest.Reader{Chunk: in.chunk}, Writer: manifest.Writer{Put: out.put}}
	var head manifest.Ref
	if !r.head.ID.IsZero() {
		head = refOf(r.head)
	}
	shards := make([]manifest.Shard, len(r.shards))
	for i, s := range r.shards {
		shards[i] = manifest.Shard{Rank: s.rank, From: s.base, To: s.root}
	}
	tree, err := m.Merge(ctx, head, shards)
	if err == nil {
		err = out.flush()
	}
	if err != nil {
		return merged{}, err
	}
	return merged{tree, out.packs}, nil
}

// packCache reads chunks of directories. They lie together in packs of their own, of which it keeps a few.
type packCache struct {
	rs     *rounds
	domain id.DataDomain
	keys   *chunk.Keys
	packs  map[int64][]byte
	order  []int64
}

// cachedPacks is how many packs a merge keeps in memory.
const cachedPacks = 4

func (c *packCache) chunk(ctx context.Context, r manifest.Ref) ([]byte, error) {
	pack, ok := c.packs[r.Pack]
	if !ok {
		o, err := c.rs.store.Head(ctx, store.Key(c.domain, r.Pack))
		if err == nil && (o.Bytes < 1 || o.Bytes > chunk.PackSize) {
			err = manifest.ErrCorrupt
		}
		if err == nil {
			pack, err = c.read(ctx, r.Pack, o.Bytes)
		}
		if err != nil {
			return nil, fmt.Errorf("read pack %d of %s: %w", r.Pack, c.domain, err)
		}
		if len(c.order) == cachedPacks {
			delete(c.packs, c.order[0])
			c.order = c.order[1:]
		}
		c.packs[r.Pack], c.order = pack, append(c.order, r.Pack)
	}
	end := int64(r.Offset) + int64(r.Length)
	if end > int64(len(pack)) {
		return nil, manifest.ErrCorrupt
	}
	return c.keys.Open(r.ID, pack[r.Offset:end])
}

func (c *packCache) read(ctx context.Context, n, bytes int64) ([]byte, error) {
	body, err := c.rs.store.Read(ctx, store.Key(c.domain, n), 0, bytes)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	pack := make([]byte, bytes)
	_, err = io.ReadFull(body, pack)
	return pack, err
}

// packWriter stores the directories that a merge makes, in packs of the session that completes its round. If the commit
// does not happen, they are swept like others that were granted and never committed.
type packWriter struct {
	rs     *rounds
	ctx    context.Context
	x      dbq.DataSession
	keys   *chunk.Keys
	packer chunk.Packer
	n      int64
	packs  *manifest.PackSet
	have   map[chunk.ID]manifest.Ref
}

func (w *packWriter) put(b []byte) (manifest.Ref, error) {
	cid := w.keys.ID(b)
	if r, ok := w.have[cid]; ok {
		return r, nil
	}
	blob, err := w.keys.Seal(nil, cid, b)
	if err != nil {
		return manifest.Ref{}, err
	}
	if w.packer.Len() > 0 && !w.packer.Fits(len(blob)) {
		if err := w.flush(); err != nil {
			return manifest.Ref{}, err
		}
	}
	if w.packer.Len() == 0 {
		got, err := w.rs.packs.reserve(w.ctx, w.x.ID, 1)
		if err != nil {
			return manifest.Ref{}, err
		}
		w.n = got.First
	}
	e, err := w.packer.Add(cid, blob)
	if err != nil {
		return manifest.Ref{}, err
	}
	r := manifest.Ref{ID: cid, Pack: w.n, Offset: e.Offset, Length: e.Length, Size: uint32(len(b))}
	if w.have == nil {
		w.have = map[chunk.ID]manifest.Ref{}
	}
	w.have[cid] = r
	return r, nil
}

// flush stores the pack that is being filled.
func (w *packWriter) flush() error {
	if w.packer.Len() == 0 {
		return nil
	}
	pack, err := w.packer.Finish(w.keys)
	if err != nil {
		return err
	}
	w.packer = chunk.Packer{}
	sum := sha256.Sum256(pack)
	err = w.rs.sessions.inDomain(w.ctx, w.x.ID, func(ctx context.Context, tx *db.Tx, x dbq.DataSession,
		_ dbq.DataDomain) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		err = tx.Q.InsertDataPacks(ctx, dbq.InsertDataPacksParams{
			DomainID: x.DomainID, SessionID: x.ID, URLUntil: now.Add(putLife),
			Ns: []int64{w.n}, Sums: [][]byte{sum[:]}, Sizes: []int64{int64(len(pack))},
		})
		if err != nil {
			return fmt.Errorf("note pack %d of %s: %w", w.n, x.DomainID, err)
		}
		return w.rs.limiter.admit(ctx, tx, x, int64(len(pack)))
	})
	if err != nil {
		return err
	}
	if err := w.rs.store.Put(w.ctx, store.Key(w.x.DomainID, w.n), pack); err != nil {
		return fmt.Errorf("store pack %d of %s: %w", w.n, w.x.DomainID, err)
	}
	if err := w.rs.verifier.noteSeen(w.ctx, w.x.DomainID, []int64{w.n}); err != nil {
		return fmt.Errorf("note pack %d of %s: %w", w.n, w.x.DomainID, err)
	}
	w.packs.Add(w.n)
	return nil
}
