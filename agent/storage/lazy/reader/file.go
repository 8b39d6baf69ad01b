package reader

import (
	"context"
	"io"
	"sort"
	"sync"

	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

const (
	// Read-ahead begins with firstAhead and grows to maxAhead while a file is read in its order.
	firstAhead = 1 << 20
	maxAhead   = 8 * maxRange
	// nearby is how far from the end of the last read one may begin that is in order: the kernel sends several at once.
	nearby = 2 << 20
	// keptLists is how many lists of references a file keeps decoded.
	keptLists = 4
)

// A File is a file of the snapshot. It is safe for concurrent use.
type File struct {
	s     *Snapshot
	entry manifest.Entry
	path  string  // for people
	holes []int64 // bytes of the holes up to and with each one

	mu    sync.Mutex
	lists []refList // in the order of the content, as far as they were read
	rest  []level   // what follows, the innermost last
	known int64     // bytes of content in lists
	kept  []keptList
}

// refList is a list of references to the content.
type refList struct {
	start int64 // in the content without holes
	at    manifest.Ref
	refs  []manifest.Ref // of a file whose entry has them itself
}

// level is a list of references to lists, and how deep the lists below it are.
type level struct {
	lists int
	refs  []manifest.Ref
	last  bool // no list follows the last of refs
}

type keptList struct {
	start int64
	refs  []manifest.Ref
	ends  []int64 // of each chunk, in the content without holes
}

func newFile(s *Snapshot, e manifest.Entry, path string) *File {
	f := &File{s: s, entry: e, path: path, holes: make([]int64, len(e.Holes))}
	sum := int64(0)
	for i, h := range e.Holes {
		sum += h.Length
		f.holes[i] = sum
	}
	if e.Body.Lists == 0 {
		f.lists = []refList{{refs: e.Body.Refs}}
		for _, r := range e.Body.Refs {
			f.known += int64(r.Size)
		}
	} else {
		f.rest = []level{{e.Body.Lists, e.Body.Refs, true}}
	}
	return f
}

// piece is a chunk of the content.
type piece struct {
	ref   manifest.Ref
	start int64 // in the content without holes
}

// pieces returns the chunks of n bytes of the content from an offset on.
func (f *File) pieces(ctx context.Context, from, n int64) (out []piece, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for to := from + n; from < to; {
		l, err := f.list(ctx, from)
		if err != nil {
			return out, err
		}
		i := sort.Search(len(l.ends), func(i int) bool { return l.ends[i] > from })
		for ; i < len(l.refs) && from < to; i++ {
			out = append(out, piece{l.refs[i], l.ends[i] - int64(l.refs[i].Size)})
			from = l.ends[i]
		}
	}
	return out, nil
}

// list returns the list of references in which an offset of the content is. Callers hold f.mu.
func (f *File) list(ctx context.Context, at int64) (keptList, error) {
	for at >= f.known {
		if err := f.extend(ctx); err != nil {
			return keptList{}, err
		}
	}
	l := f.lists[sort.Search(len(f.lists), func(i int) bool { return f.lists[i].start > at })-1]
	for _, k := range f.kept {
		if k.start == l.start {
			return k, nil
		}
	}
	refs := l.refs
	if refs == nil {
		var err error
		if refs, err = f.s.manifest.List(ctx, l.at, true); err != nil { // extend has checked its length
			return keptList{}, err
		}
	}
	k := keptList{start: l.start, refs: refs, ends: make([]int64, len(refs))}
	end := l.start
	for i, r := range refs {
		end += int64(r.Size)
		k.ends[i] = end
	}
	f.kept = append([]keptList{k}, f.kept[:min(len(f.kept), keptLists-1)]...)
	return k, nil
}

// extend reads the next list of references. Callers hold f.mu.
func (f *File) extend(ctx context.Context) error {
	for len(f.rest) > 0 {
		top := &f.rest[len(f.rest)-1]
		if len(top.refs) == 0 {
			f.rest = f.rest[:len(f.rest)-1]
			continue
		}
		at, below, last := top.refs[0], top.lists-1, top.last && len(top.refs) == 1
		refs, err := f.s.manifest.List(ctx, at, last)
		if err != nil {
			return err // the next read tries again
		}
		top.refs = top.refs[1:]
		if below > 0 {
			f.rest = append(f.rest, level{below, refs, last})
			continue
		}
		start := f.known
		for _, r := range refs {
			f.known += int64(r.Size)
		}
		f.lists = append(f.lists, refList{start: start, at: at})
		if n := int64(len(f.lists)-1) * manifest.MaxListRefs; f.known > f.content() || n > manifest.MaxChunks(f.known) {
			return manifest.ErrCorrupt
		}
		return nil
	}
	return chunk.ErrCorrupt // the chunks are fewer than the file's size
}

// dense returns where an offset of the file is in the content without holes, or that it is in a hole, and how far in
// the file what is there reaches.
func (f *File) dense(off int64) (at, until int64, hole bool) {
	holes := f.entry.Holes
	i := sort.Search(len(holes), func(i int) bool { return holes[i].Offset+holes[i].Length > off })
	if i < len(holes) && holes[i].Offset <= off {
		return 0, holes[i].Offset + holes[i].Length, true
	}
	at, until = off, f.entry.Size
	if i > 0 {
		at -= f.holes[i-1]
	}
	if i < len(holes) {
		until = holes[i].Offset
	}
	return at, until, false
}

// content returns how many bytes the file has without its holes.
func (f *File) content() int64 {
	if len(f.holes) == 0 {
		return f.entry.Size
	}
	return f.entry.Size - f.holes[len(f.holes)-1]
}

// A Handle is an open file. It notices reads in order and reads ahead of them.
type Handle struct {
	f *File

	mu      sync.Mutex
	next    int64 // where the last read ended
	width   int64 // of the read-ahead; 0: reads are not in order
	aheadTo int64 // in the content without holes
}

// Open returns a new handle.
func (f *File) Open() *Handle { return &Handle{f: f} }

// ReadAt fills p from an offset. At the end of the file it returns fewer bytes and io.EOF.
func (h *Handle) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	size := h.f.entry.Size
	if off >= size {
		return 0, io.EOF
	}
	short := int64(len(p)) > size-off
	if short {
		p = p[:size-off]
	}
	width := h.look(off, int64(len(p)))
	for n < len(p) {
		at, until, hole := h.f.dense(off + int64(n))
		part := p[n:min(int64(len(p)), int64(n)+until-off-int64(n))]
		if hole {
			clear(part)
			n += len(part)
			continue
		}
		if err := h.content(ctx, part, at, width); err != nil {
			h.f.s.failed(h.f.path, err)
			return n, err
		}
		n += len(part)
	}
	if short {
		err = io.EOF
	}
	return n, err
}

// look notes a read, and returns how far to read ahead.
func (h *Handle) look(off, n int64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case off+nearby < h.next, off > h.next+nearby:
		h.width, h.next, h.aheadTo = 0, off+n, 0
		return 0
	case h.width == 0:
		h.width = firstAhead
	case off+n > h.next:
		h.width = min(2*h.width, maxAhead)
	}
	h.next = max(h.next, off+n)
	return h.width
}

// content reads bytes of the content without holes.
func (h *Handle) content(ctx context.Context, p []byte, at, width int64) error {
	need, err := h.f.pieces(ctx, at, int64(len(p)))
	if err != nil {
		return err
	}
	h.request(need, demand)
	if width > 0 {
		h.readAhead(ctx, at, int64(len(p)), width)
	}
	for _, x := range need {
		got, err := h.f.s.chunks.get(ctx, x.ref)
		if err != nil {
			return err
		}
		n := copy(p, got.b[at-x.start:])
		got.release()
		p, at = p[n:], at+int64(n)
	}
	return nil
}

// request begins to fetch pieces, and returns how many of them: all but ahead of readers.
func (h *Handle) request(pieces []piece, who int) (n int) {
	refs := make([]manifest.Ref, len(pieces))
	for i, x := range pieces {
		refs[i] = x.ref
	}
	for _, g := range groups(refs) {
		if !h.f.s.chunks.start(g, who) {
			break
		}
		n += len(g)
	}
	return n
}

// readAhead begins to fetch what follows a read, in large requests. Errors show when a reader gets there.
func (h *Handle) readAhead(ctx context.Context, at, n, width int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	end := min(at+n+width, h.f.content())
	from := max(h.aheadTo, at+n)
	if from >= end || end-from < maxRange && end < h.f.content() && from > at+n+width/2 {
		return // enough is on its way: the next request should be a large one
	}
	pieces, err := h.f.pieces(ctx, from, end-from)
	if err != nil {
		return
	}
	if n := h.request(pieces, ahead); n > 0 {
		last := pieces[n-1]
		h.aheadTo = last.start + int64(last.ref.Size)
	}
}
