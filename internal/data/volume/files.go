package volume

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// A Tree is the files of a snapshot.
type Tree struct {
	Snapshot Snapshot
	root     manifest.Ref
	reader   manifest.Reader
}

// File is an entry of a directory, for people: its name is printable.
type File struct {
	Name   string
	Kind   string // "file", "dir", "symlink"
	Mode   uint32
	Size   int64 // of a file
	MTime  int64 // nanoseconds since 1970
	Target string
}

// Tree returns the files of a snapshot; seq 0 is the last one. Faults: NotFound, Unavailable, Conflict if the volume is
// hidden.
func (v *Volumes) Tree(ctx context.Context, org id.Org, vol id.Volume, seq int64) (*Tree, error) {
	if v.store == nil {
		return nil, errNoStore
	}
	have, err := v.Get(ctx, org, vol)
	if err != nil {
		return nil, err
	}
	if have.HiddenAt != nil {
		return nil, errHidden(have.Name)
	}
	if seq == 0 {
		seq = have.HeadSeq
	}
	rows, err := v.d.Q.SnapshotAt(ctx, vol, seq)
	if err != nil {
		return nil, fmt.Errorf("snapshot %d of %s: %w", seq, vol, err)
	}
	if len(rows) == 0 {
		return nil, errNoSnapshot
	}
	d, err := v.d.Q.DomainOfVolume(ctx, vol)
	if err != nil {
		return nil, fmt.Errorf("data domain of %s: %w", vol, err)
	}
	if d.ErasedAt != nil { // its last volume was deleted since
		return nil, errNone
	}
	keys, err := v.keys(d.ID, d.KeySealed)
	if err != nil {
		return nil, err
	}
	return &Tree{
		Snapshot: snapshotOf(rows[0]), root: refOf(rows[0]),
		reader: manifest.Reader{Chunk: func(ctx context.Context, r manifest.Ref) ([]byte, error) {
			return v.chunk(ctx, keys, d.ID, r)
		}},
	}, nil
}

func refOf(s dbq.VolumeSnapshot) manifest.Ref {
	return manifest.Ref{ID: chunk.ID(s.RootID), Pack: s.RootPack, Offset: uint32(s.RootOffset),
		Length: uint32(s.RootLength), Size: uint32(s.RootSize)}
}

// chunk reads a chunk from the store and opens it.
func (v *Volumes) chunk(ctx context.Context, keys *chunk.Keys, domain id.DataDomain, r manifest.Ref) ([]byte, error) {
	body, err := v.store.Read(ctx, store.Key(domain, r.Pack), int64(r.Offset), int64(r.Length))
	if errors.Is(err, store.ErrNotFound) || ctx.Err() != nil {
		return nil, fmt.Errorf("read pack %d of %s: %w", r.Pack, domain, err)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the store does not answer: try it again")
	}
	defer body.Close()
	blob := make([]byte, r.Length)
	if _, err := io.ReadFull(body, blob); err != nil && ctx.Err() == nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the store cuts off what it sends: try it again")
	} else if err != nil {
		return nil, err
	}
	return keys.Open(r.ID, blob)
}

var errNoFile = fault.New(fault.NotFound, "file not found")

// readable turns the errors of reading a tree into faults.
func readable(err error) error {
	switch {
	case errors.Is(err, manifest.ErrNotFound):
		return errNoFile
	case errors.Is(err, manifest.ErrCorrupt), errors.Is(err, chunk.ErrCorrupt), errors.Is(err, store.ErrNotFound):
		return fault.Wrap(err, fault.Unavailable, "the snapshot cannot be read: a part of it is lost or was changed")
	}
	return err
}

// find returns the entry at a path below the root.
func (t *Tree) find(ctx context.Context, path string) (manifest.Entry, error) {
	root, err := t.reader.Root(ctx, t.root)
	if err != nil {
		return manifest.Entry{}, readable(err)
	}
	e, err := t.reader.Find(ctx, root, path)
	return e, readable(err)
}

// List returns the entries of a directory by name; of a file, itself. Faults: NotFound, Unavailable.
func (t *Tree) List(ctx context.Context, path string) ([]File, error) {
	e, err := t.find(ctx, path)
	if err != nil {
		return nil, err
	}
	if e.Kind != manifest.Dir {
		return []File{fileOf(e)}, nil
	}
	entries, err := t.reader.Dir(ctx, e)
	if err != nil {
		return nil, readable(err)
	}
	out := make([]File, len(entries))
	for i, e := range entries {
		out[i] = fileOf(e)
	}
	return out, nil
}

func fileOf(e manifest.Entry) File {
	f := File{Name: agentapi.CleanText(e.Name), Mode: e.Mode, MTime: e.MTime, Target: agentapi.CleanText(e.Target)}
	switch e.Kind {
	case manifest.Dir:
		f.Kind = "dir"
	case manifest.Symlink:
		f.Kind = "symlink"
	default:
		f.Kind, f.Size = "file", e.Size
	}
	return f
}

// Open returns a file's size and a function that writes its content. Faults: NotFound, Unavailable, Conflict if it is
// no file.
func (t *Tree) Open(ctx context.Context, path string) (File, func(io.Writer) error, error) {
	e, err := t.find(ctx, path)
	if err != nil {
		return File{}, nil, err
	}
	if e.Kind != manifest.File {
		return File{}, nil, fault.New(fault.Conflict, "%s is not a file", agentapi.CleanText(path))
	}
	return fileOf(e), func(w io.Writer) error { return readable(t.reader.Write(ctx, w, e)) }, nil
}
