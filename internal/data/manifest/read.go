package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/musterhq/muster/internal/data/chunk"
)

// A Reader reads trees.
type Reader struct {
	// Chunk returns the chunk of a reference, opened and verified by chunk.Keys.Open.
	Chunk func(ctx context.Context, r Ref) ([]byte, error)
	// MaxEntries is how many entries a directory may have that it reads; 0 is MaxEntries.
	MaxEntries int
}

// ErrManyEntries is the error of a directory that has more entries than Reader.MaxEntries.
var ErrManyEntries = errors.New("the directory has too many entries")

// ErrNotFound is the error of a path that names nothing, or leads through something other than a directory.
var ErrNotFound = errors.New("file not found")

// Root reads the root of a snapshot.
func (r Reader) Root(ctx context.Context, ref Ref) (Root, error) {
	b, err := r.chunk(ctx, ref)
	if err != nil {
		return Root{}, err
	}
	return DecodeRoot(b)
}

func (r Reader) chunk(ctx context.Context, ref Ref) ([]byte, error) {
	if !ref.ok() {
		return nil, ErrCorrupt
	}
	b, err := r.Chunk(ctx, ref)
	if err == nil && len(b) != int(ref.Size) {
		err = ErrCorrupt
	}
	return b, err
}

// Content returns the references to the chunks of an entry's content: see Refs for files, and Entries for directories.
func (r Reader) Content(ctx context.Context, e Entry) iter.Seq2[Ref, error] {
	if e.Kind == File {
		return r.Refs(ctx, e)
	}
	return r.refs(ctx, e.Body)
}

// Refs returns the references to the chunks of a file's data, in their order. It ends with the first error: also if
// there are more of them, or more bytes in them, than a file of this size has.
func (r Reader) Refs(ctx context.Context, e Entry) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		total, n, read := dense(&e), int64(0), int64(0)
		for ref, err := range r.refs(ctx, e.Body) {
			if n, read = n+1, read+int64(ref.Size); err == nil && (read > total || n > MaxChunks(read)) {
				err = ErrCorrupt
			}
			if !yield(ref, err) || err != nil {
				return
			}
		}
		if read != total {
			yield(Ref{}, ErrCorrupt)
		}
	}
}

// MaxChunks is more than the chunks that the first n bytes of a file can have. A file that was changed in many places
// was split by a Splitter for each of them, so that it may have more than chunk.MaxChunks.
func MaxChunks(n int64) int64 { return 8 * chunk.MaxChunks(n) }

// refs returns the references of a content. It ends with the first error.
func (r Reader) refs(ctx context.Context, c Content) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) { r.walk(ctx, c, true, yield) }
}

// walk passes the references of a content to yield. last: no list follows this one, so that it may be shorter than a
// Writer makes lists.
func (r Reader) walk(ctx context.Context, c Content, last bool, yield func(Ref, error) bool) bool {
	for i, ref := range c.Refs {
		if c.Lists == 0 {
			if !yield(ref, nil) {
				return false
			}
			continue
		}
		last := last && i == len(c.Refs)-1
		below, err := r.List(ctx, ref, last)
		if err != nil {
			yield(Ref{}, err)
			return false
		}
		if !r.walk(ctx, Content{Lists: c.Lists - 1, Refs: below}, last, yield) {
			return false
		}
	}
	return true
}

// List reads a chunk that lists references. Unless it is the last one of its content, it has MaxListRefs.
func (r Reader) List(ctx context.Context, ref Ref, last bool) ([]Ref, error) {
	b, err := r.chunk(ctx, ref)
	if err != nil {
		return nil, err
	}
	refs, err := DecodeRefs(b)
	if err == nil && !last && len(refs) != MaxListRefs {
		err = ErrCorrupt
	}
	return refs, err
}

// Entries returns the entries of a directory, in the order of their names. It reads them as they are needed, and ends
// with the first error.
func (r Reader) Entries(ctx context.Context, e Entry) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := r.entries(ctx, e, func(e Entry) bool { return yield(e, nil) }); err != nil {
			yield(Entry{}, err)
		}
	}
}

func (r Reader) entries(ctx context.Context, e Entry, f func(Entry) bool) error {
	if e.Kind != Dir || e.Size > MaxDirBytes || e.Size == 0 {
		return ErrCorrupt
	}
	d, n := dirDecoder{size: e.Size, most: r.MaxEntries}, int64(0)
	for ref, err := range r.refs(ctx, e.Body) {
		if err != nil {
			return err
		}
		if n++; n > chunk.MaxChunks(d.read+int64(ref.Size)) || d.read+int64(ref.Size) > d.size {
			return ErrCorrupt
		}
		part, err := r.chunk(ctx, ref)
		if err != nil {
			return err
		}
		if err := d.add(part, f); err != nil || d.over {
			return err
		}
	}
	if d.read != d.size {
		return ErrCorrupt
	}
	return nil
}

// Dir reads the entries of a directory, all at once: see Entries.
func (r Reader) Dir(ctx context.Context, e Entry) (entries []Entry, err error) {
	for k, err := range r.Entries(ctx, e) {
		if err != nil {
			return nil, err
		}
		entries = append(entries, k)
	}
	return entries, nil
}

// Find returns the entry at a path below the root, with elements between slashes; "" is the root. It follows no
// symbolic link.
func (r Reader) Find(ctx context.Context, root Root, path string) (Entry, error) {
	at := root.Dir
	depth := 0
	for name := range strings.SplitSeq(path, "/") {
		if name == "" {
			continue
		}
		if depth++; at.Kind != Dir || depth > MaxDepth {
			return Entry{}, ErrNotFound
		}
		var err error
		if at, err = r.Entry(ctx, at, name); err != nil {
			return Entry{}, err
		}
	}
	return at, nil
}

// Entry returns the entry of a directory that has a name.
func (r Reader) Entry(ctx context.Context, dir Entry, name string) (Entry, error) {
	for e, err := range r.Entries(ctx, dir) {
		switch {
		case err != nil:
			return Entry{}, err
		case e.Name == name:
			return e, nil
		case e.Name > name:
			return Entry{}, ErrNotFound
		}
	}
	return Entry{}, ErrNotFound
}

// Write writes the content of a file to w, its holes as zeros.
func (r Reader) Write(ctx context.Context, w io.Writer, e Entry) error {
	if e.Kind != File {
		return fmt.Errorf("%q is not a file", e.Name)
	}
	holes, at := e.Holes, int64(0)
	skip := func() error {
		for len(holes) > 0 && holes[0].Offset == at {
			if err := zeros(w, holes[0].Length); err != nil {
				return err
			}
			at += holes[0].Length
			holes = holes[1:]
		}
		return nil
	}
	for ref, err := range r.Refs(ctx, e) {
		if err != nil {
			return err
		}
		b, err := r.chunk(ctx, ref)
		if err != nil {
			return err
		}
		for len(b) > 0 {
			if err := skip(); err != nil {
				return err
			}
			n := int64(len(b))
			if len(holes) > 0 {
				n = min(n, holes[0].Offset-at)
			}
			if at+n > e.Size {
				return ErrCorrupt
			}
			if _, err := w.Write(b[:n]); err != nil {
				return err
			}
			at, b = at+n, b[n:]
		}
	}
	if err := skip(); err != nil {
		return err
	}
	if at != e.Size {
		return ErrCorrupt
	}
	return nil
}

func zeros(w io.Writer, n int64) error {
	var block [64 << 10]byte
	for n > 0 {
		k, err := w.Write(block[:min(n, int64(len(block)))])
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	return nil
}
