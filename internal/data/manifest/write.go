package manifest

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/musterhq/muster/internal/data/chunk"
)

// A Writer writes the parts of a tree that are not the data of files: directories, long lists of references, and the
// root. Write a directory after everything in it.
type Writer struct {
	// Put stores a chunk and returns where it is. The caller knows the chunks that are stored already; it seals others and
	// adds them to a pack of this kind whose number is reserved. The chunk is valid until Put returns.
	Put func(b []byte) (Ref, error)
}

// Content returns the content of these references to chunks of data: as it is if it is short, else by chunks that list
// them.
func (w Writer) Content(refs []Ref) (Content, error) {
	c := Content{Refs: refs}
	for len(c.Refs) > MaxRefs {
		var above []Ref
		for part := range slices.Chunk(c.Refs, MaxListRefs) {
			b, err := EncodeRefs(part)
			if err != nil {
				return Content{}, err
			}
			ref, err := w.Put(b)
			if err != nil {
				return Content{}, err
			}
			above = append(above, ref)
		}
		c = Content{Lists: c.Lists + 1, Refs: above}
	}
	if c.Lists > MaxLists {
		return Content{}, errors.New("a file has too many chunks")
	}
	return c, nil
}

// Dir writes the entries of a directory and sets the size and the content of e, which is the directory.
func (w Writer) Dir(e *Entry, entries []Entry) error {
	b, err := EncodeDir(entries)
	if err != nil {
		return err
	}
	var refs []Ref
	for s := chunk.NewSplitter(bytes.NewReader(b)); ; {
		part, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		ref, err := w.Put(part)
		if err != nil {
			return err
		}
		refs = append(refs, ref)
	}
	e.Size = int64(len(b))
	e.Body, err = w.Content(refs)
	return err
}

// Root writes the root of a snapshot.
func (w Writer) Root(r Root) (Ref, error) {
	b, err := EncodeRoot(r)
	if err != nil {
		return Ref{}, err
	}
	return w.Put(b)
}
