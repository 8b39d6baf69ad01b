package transfer

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

// keptPacks is how many packs of manifests are kept in memory while a tree is read.
const keptPacks = 4

// A tree reads the manifest of a snapshot. It reads packs as a whole: chunks of directories lie side by side.
type tree struct {
	s *Session

	mu    sync.Mutex
	packs map[int64][]byte
	order []int64 // the pack that was used longest ago first
}

func newTree(s *Session) *tree { return &tree{s: s, packs: map[int64][]byte{}} }

func (t *tree) reader() manifest.Reader { return manifest.Reader{Chunk: t.chunk} }

func (t *tree) chunk(ctx context.Context, r manifest.Ref) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	pack, ok := t.packs[r.Pack]
	if !ok {
		var err error
		if pack, err = t.s.get(ctx, r.Pack, 0, 0); err != nil {
			return nil, err
		}
		if len(t.order) == keptPacks {
			delete(t.packs, t.order[0])
			t.order = t.order[1:]
		}
		t.packs[r.Pack] = pack
	} else if i := slices.Index(t.order, r.Pack); i >= 0 {
		t.order = slices.Delete(t.order, i, i+1)
	}
	t.order = append(t.order, r.Pack)
	end := int64(r.Offset) + int64(r.Length)
	if end > int64(len(pack)) {
		return nil, manifest.ErrCorrupt
	}
	return t.s.open(ctx, r, pack[r.Offset:end])
}

// open returns the chunk of a blob. One whose bytes are not those that were stored is read again once, in case the line
// or a cache before the store has changed them.
func (s *Session) open(ctx context.Context, r manifest.Ref, blob []byte) ([]byte, error) {
	b, err := s.Keys.Open(r.ID, blob)
	if errors.Is(err, chunk.ErrCorrupt) {
		if blob, err = s.get(ctx, r.Pack, int64(r.Offset), int64(r.Length)); err == nil {
			b, err = s.Keys.Open(r.ID, blob)
		}
	}
	if err == nil && len(b) != int(r.Size) {
		err = chunk.ErrCorrupt
	}
	return b, err
}
