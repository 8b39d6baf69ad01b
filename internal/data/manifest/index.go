package manifest

import (
	"encoding/binary"

	"github.com/musterhq/muster/internal/data/chunk"
)

// An Index finds the chunks that are stored already. It takes about 70 bytes for each. It is not safe for concurrent
// use.
type Index struct {
	slots map[uint64]uint32
	refs  []Ref
}

// NewIndex returns an empty index.
func NewIndex() *Index { return &Index{slots: map[uint64]uint32{}} }

func slotOf(id chunk.ID) uint64 { return binary.LittleEndian.Uint64(id[:]) }

// Add notes where a chunk is stored. Of a chunk that is known already, the first place stays.
func (x *Index) Add(r Ref) {
	if _, ok := x.slots[slotOf(r.ID)]; ok { // known, or a collision: then the second chunk is stored each time
		return
	}
	x.slots[slotOf(r.ID)] = uint32(len(x.refs))
	x.refs = append(x.refs, r)
}

// Find returns where a chunk is stored.
func (x *Index) Find(id chunk.ID) (Ref, bool) {
	i, ok := x.slots[slotOf(id)]
	if !ok || x.refs[i].ID != id {
		return Ref{}, false
	}
	return x.refs[i], true
}

// Forget removes the chunks of packs that are not stored any more.
func (x *Index) Forget(packs map[int64]bool) {
	old := x.refs
	*x = *NewIndex()
	for _, r := range old {
		if !packs[r.Pack] {
			x.Add(r)
		}
	}
}
