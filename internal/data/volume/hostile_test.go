package volume

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// hostile is a tree of a snapshot whose chunks are in memory.
type hostile struct {
	*Tree
	t      *testing.T
	chunks map[chunk.ID][]byte
}

func newHostile(t *testing.T) *hostile {
	h := &hostile{t: t, chunks: map[chunk.ID][]byte{}}
	h.Tree = &Tree{Snapshot: Snapshot{Seq: 1}, f: newFiles(nil, nil, nil, nil, nil), org: id.New[id.Org](),
		limit: 100 * GB,
		reader: manifest.Reader{Chunk: func(_ context.Context, r manifest.Ref) ([]byte, error) {
			return h.chunks[r.ID], nil
		}}}
	return h
}

func (h *hostile) put(b []byte) (manifest.Ref, error) {
	id := chunk.ID(sha256.Sum256(b))
	h.chunks[id] = bytes.Clone(b)
	return manifest.Ref{ID: id, Pack: 1, Length: uint32(len(b)) + chunk.Overhead, Size: uint32(len(b))}, nil
}

func (h *hostile) ref(b []byte) manifest.Ref {
	r, _ := h.put(b)
	return r
}

// list is a chunk of references to one chunk.
func (h *hostile) list(to manifest.Ref) manifest.Ref {
	h.t.Helper()
	b, err := manifest.EncodeRefs(slices.Repeat([]manifest.Ref{to}, manifest.MaxListRefs))
	if err != nil {
		h.t.Fatal(err)
	}
	return h.ref(b)
}

// root makes a directory the root.
func (h *hostile) root(dir manifest.Entry) {
	h.t.Helper()
	dir.Kind = manifest.Dir
	var err error
	if h.Tree.root, err = (manifest.Writer{Put: h.put}).Root(manifest.Root{Dir: dir}); err != nil {
		h.t.Fatal(err)
	}
}

// dir makes a directory of entries the root.
func (h *hostile) dir(entries ...manifest.Entry) {
	h.t.Helper()
	dir := manifest.Entry{Kind: manifest.Dir}
	if err := (manifest.Writer{Put: h.put}).Dir(&dir, entries); err != nil {
		h.t.Fatal(err)
	}
	h.root(dir)
}

func names(n int) []manifest.Entry {
	out := make([]manifest.Entry, n)
	for i := range out {
		out[i] = manifest.Entry{Name: strconv.Itoa(1_000_000 + i), Kind: manifest.Symlink, Target: "x"}
	}
	return out
}

// Memory and time of a list do not depend on what was stored: what claims to be large is refused after a few reads. Not
// parallel: it measures what is allocated.
func TestTree_AListCostsWhatItReads(t *testing.T) {
	h := newHostile(t)
	first := append([]byte("MSTRDIR1"), 0x80, 0x80, 0xc0, 0x03) // claims 7,340,032 entries
	first = append(first, make([]byte, 1<<20-len(first))...)
	zeros := slices.Repeat([]manifest.Ref{h.ref(make([]byte, 1<<20))}, 63)
	claim := manifest.Entry{Size: 64 << 20, Body: manifest.Content{Refs: append([]manifest.Ref{h.ref(first)}, zeros...)}}
	bytewise := manifest.Entry{Size: 8 << 20, Body: manifest.Content{Lists: 1,
		Refs: slices.Repeat([]manifest.Ref{h.list(h.ref([]byte("M")))}, 1024)}}
	for name, c := range map[string]struct {
		make func()
		want fault.Kind
	}{
		"a number of entries that are not there": {func() { h.root(claim) }, fault.Unavailable},
		"chunks of one byte":                     {func() { h.root(bytewise) }, fault.Unavailable},
		"too many entries":                       {func() { h.dir(names(MaxListed + 1)...) }, fault.Conflict},
	} {
		c.make()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := h.List(t.Context(), "", "", MaxPage)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; !fault.Is(err, c.want) || got > 16<<20 {
			t.Errorf("%s: %v, after %d bytes were allocated", name, err, got)
		}
	}
}

// A directory comes in pages, each entry once and in its order.
func TestTree_ADirectoryComesInPages(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	all := names(MaxPage + 5)
	h.dir(all...)
	var got []File
	after, pages := "", 0
	for pages == 0 || after != "" {
		files, next, err := h.List(t.Context(), "", after, MaxPage)
		if err != nil {
			t.Fatal(err)
		}
		got, after, pages = append(got, files...), next, pages+1
	}
	if pages != 2 || len(got) != len(all) {
		t.Fatalf("%d entries of %d in %d pages", len(got), len(all), pages)
	}
	for i, f := range got {
		if f.Name != all[i].Name {
			t.Fatalf("entry %d is %s, not %s", i, f.Name, all[i].Name)
		}
	}
}

// A file without end, of holes or of one chunk again and again, is refused before anything of it is sent.
func TestTree_AFileWithoutEndIsNotSent(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	lists := h.list(h.list(h.ref(bytes.Repeat([]byte("muster "), 1<<20/7))))
	h.dir(
		manifest.Entry{Name: "holes", Kind: manifest.File, Size: 1 << 60, Holes: []manifest.Extent{{Length: 1 << 60}}},
		manifest.Entry{Name: "sparse", Kind: manifest.File, Size: 10 * GB, Holes: []manifest.Extent{{Length: 10 * GB}}},
		manifest.Entry{Name: "refs", Kind: manifest.File, Size: 1 << 56,
			Body: manifest.Content{Lists: 2, Refs: slices.Repeat([]manifest.Ref{lists}, 1000)}})
	for name, want := range map[string]fault.Kind{
		"holes": fault.Conflict, "sparse": fault.Conflict, "refs": fault.Unavailable,
	} {
		err := h.Send(t.Context(), name, func(File) io.Writer {
			t.Errorf("%s is sent", name)
			return io.Discard
		})
		if !fault.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An organisation downloads a few files at the same time. Another one's downloads are not in their way.
func TestTree_DownloadsAtTheSameTimeAreLimited(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	text := []byte("text")
	h.dir(manifest.Entry{Name: "f", Kind: manifest.File, Size: int64(len(text)),
		Body: manifest.Content{Refs: []manifest.Ref{h.ref(text)}}})
	send := func(tree *Tree, begin func()) error {
		return tree.Send(t.Context(), "f", func(File) io.Writer { begin(); return io.Discard })
	}
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	for range downloadsPerOrg {
		go func() { ended <- send(h.Tree, func() { begun <- struct{}{}; <-end }) }()
	}
	for range downloadsPerOrg {
		<-begun
	}
	if err := send(h.Tree, func() {}); !fault.Is(err, fault.RateLimited) || fault.From(err).RetryAfter == 0 {
		t.Errorf("one more download: %v", err)
	}
	other := *h.Tree
	other.org = id.New[id.Org]()
	if err := send(&other, func() {}); err != nil {
		t.Errorf("another organisation's: %v", err)
	}
	close(end)
	for range downloadsPerOrg {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if err := send(h.Tree, func() {}); err != nil {
		t.Errorf("after they have ended: %v", err)
	}
}
