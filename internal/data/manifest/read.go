package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// A Reader reads trees.
type Reader struct {
	// Chunk returns the chunk of a reference, opened and verified by chunk.Keys.Open.
	Chunk func(ctx context.Context, r Ref) ([]byte, error)
}

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

// Refs returns the references to the chunks of the data, in their order. It ends with the first error.
func (r Reader) Refs(ctx context.Context, c Content) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) { r.walk(ctx, c, yield) }
}

func (r Reader) walk(ctx context.Context, c Content, yield func(Ref, error) bool) bool {
	for _, ref := range c.Refs {
		if c.Lists == 0 {
			if !yield(ref, nil) {
				return false
			}
			continue
		}
		b, err := r.chunk(ctx, ref)
		if err == nil {
			var below []Ref
			if below, err = DecodeRefs(b); err == nil {
				if !r.walk(ctx, Content{Lists: c.Lists - 1, Refs: below}, yield) {
					return false
				}
				continue
			}
		}
		yield(Ref{}, err)
		return false
	}
	return true
}

// Dir reads the entries of a directory.
func (r Reader) Dir(ctx context.Context, e Entry) ([]Entry, error) {
	if e.Kind != Dir || e.Size > MaxDirBytes {
		return nil, ErrCorrupt
	}
	var b []byte
	for ref, err := range r.Refs(ctx, e.Body) {
		if err != nil {
			return nil, err
		}
		part, err := r.chunk(ctx, ref)
		if err != nil {
			return nil, err
		}
		if b = append(b, part...); int64(len(b)) > e.Size {
			return nil, ErrCorrupt
		}
	}
	if int64(len(b)) != e.Size {
		return nil, ErrCorrupt
	}
	return DecodeDir(b)
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
		entries, err := r.Dir(ctx, at)
		if err != nil {
			return Entry{}, err
		}
		found := false
		for _, e := range entries {
			if e.Name == name {
				at, found = e, true
				break
			}
		}
		if !found {
			return Entry{}, ErrNotFound
		}
	}
	return at, nil
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
	for ref, err := range r.Refs(ctx, e.Body) {
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
