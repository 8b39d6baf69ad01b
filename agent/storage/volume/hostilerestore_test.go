package volume

import (
	"runtime"
	"slices"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

// hostilePack fills pack 1 of a platform's store with a tree, as anybody who has the volume's key can, and makes it the
// volume's snapshot.
type hostilePack struct {
	t      *testing.T
	keys   *chunk.Keys
	packer chunk.Packer
	have   map[chunk.ID]manifest.Ref
}

func (h *hostilePack) put(b []byte) (manifest.Ref, error) {
	id := h.keys.ID(b)
	if r, ok := h.have[id]; ok {
		return r, nil
	}
	blob, err := h.keys.Seal(nil, id, b)
	if err != nil {
		return manifest.Ref{}, err
	}
	e, err := h.packer.Add(id, blob)
	if err != nil {
		return manifest.Ref{}, err
	}
	h.have[id] = manifest.Ref{ID: id, Pack: 1, Offset: e.Offset, Length: e.Length, Size: uint32(len(b))}
	return h.have[id], nil
}

func (h *hostilePack) ref(b []byte) manifest.Ref {
	h.t.Helper()
	r, err := h.put(b)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

// list is a chunk of references to one chunk.
func (h *hostilePack) list(to manifest.Ref) manifest.Ref {
	h.t.Helper()
	b, err := manifest.EncodeRefs(slices.Repeat([]manifest.Ref{to}, manifest.MaxListRefs))
	if err != nil {
		h.t.Fatal(err)
	}
	return h.ref(b)
}

func (h *hostilePack) commit(p platform, dir manifest.Entry) {
	h.t.Helper()
	dir.Kind = manifest.Dir
	root, err := manifest.Writer{Put: h.put}.Root(manifest.Root{Dir: dir})
	if err != nil {
		h.t.Fatal(err)
	}
	pack, err := h.packer.Finish(h.keys)
	if err != nil {
		h.t.Fatal(err)
	}
	p.Packs[1] = pack
	p.Snapshots = []agentapi.Snapshot{{ID: "snp_hostile", Seq: 1, Root: placeOf(root),
		Packs: manifest.NewPackSet(1).Encode()}}
}

// A restore takes memory for what it has read, not for what a tree claims. Not parallel: it measures what is allocated.
func TestRestore_AHostileTreeCostsLittle(t *testing.T) {
	for name, tree := range map[string]func(h *hostilePack) manifest.Entry{
		"a number of entries that are not there": func(h *hostilePack) manifest.Entry {
			first := append([]byte("MSTRDIR1"), 0x80, 0x80, 0xc0, 0x03) // claims 7,340,032 entries
			first = append(first, make([]byte, 1<<20-len(first))...)
			return manifest.Entry{Size: 64 << 20, Body: manifest.Content{
				Refs: append([]manifest.Ref{h.ref(first)}, slices.Repeat([]manifest.Ref{h.ref(make([]byte, 1<<20))}, 63)...)}}
		},
		"a directory in chunks of one byte": func(h *hostilePack) manifest.Entry {
			return manifest.Entry{Size: 8 << 20, Body: manifest.Content{Lists: 1,
				Refs: slices.Repeat([]manifest.Ref{h.list(h.ref([]byte("M")))}, 1024)}}
		},
		"a file in chunks of one byte": func(h *hostilePack) manifest.Entry {
			dir := manifest.Entry{Kind: manifest.Dir}
			f := manifest.Entry{Name: "f", Kind: manifest.File, Size: 8 << 20, Body: manifest.Content{Lists: 1,
				Refs: slices.Repeat([]manifest.Ref{h.list(h.ref([]byte("M")))}, 1024)}}
			if err := (manifest.Writer{Put: h.put}).Dir(&dir, []manifest.Entry{f}); err != nil {
				h.t.Fatal(err)
			}
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, root := newPlatform(t), newRoot(t)
			cfg := p.config(root)
			keys, err := chunk.NewKeys(cfg.Mount.Key)
			if err != nil {
				t.Fatal(err)
			}
			h := &hostilePack{t: t, keys: keys, have: map[chunk.ID]manifest.Ref{}}
			h.commit(p, tree(h))
			v, err := Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err = v.Restore(t.Context(), nil)
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; !Unrestorable(err) || got > 32<<20 {
				t.Errorf("%v, after %d bytes were allocated", err, got)
			}
		})
	}
}
