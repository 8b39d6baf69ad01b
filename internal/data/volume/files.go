package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/slots"
)

// Limits of what one request reads of a snapshot, whatever is stored there. Larger directories and files are read by
// hosts and by transfers.
const (
	MaxListed    = 200_000  // entries of a directory
	MaxPage      = 10_000   // entries of one answer
	MaxDownload  = 100 * GB // bytes of a file, holes included
	MaxHoles     = 1 << 30  // bytes of holes that a file may have more than data
	maxPageText  = 1 << 20  // bytes of the names and targets of one answer
	maxDirBytes  = 32 << 20 // bytes of directories, with those that a path leads through
	maxDirChunks = 2 << 10  // chunks of them
	folderTime   = time.Minute
)

// What requests read at the same time on this replica.
const (
	readsPerOrg     = 2
	readsAll        = 8
	readWait        = 15 * time.Second // how long a request waits for its turn
	downloadsPerOrg = 4
	downloadsAll    = 64
)

// Files are the files of snapshots, as the server itself reads them.
type Files struct {
	d       *db.DB
	store   store.Store // nil: this platform has no volumes
	box     *seal.Box
	catalog *Catalog
	limiter *limiter

	reads     slots.Slots   // requests that list directories
	downloads slots.Slots   // files that are being sent
	opening   chan struct{} // chunks for them that are being opened
}

func newFiles(d *db.DB, s store.Store, box *seal.Box, catalog *Catalog, limiter *limiter) *Files {
	return &Files{
		d: d, store: s, box: box, catalog: catalog, limiter: limiter,
		reads: slots.Slots{PerOrg: readsPerOrg, All: readsAll, Wait: readWait,
			Full: "the files of volumes are being listed by many requests at the same time: try again in a moment"},
		downloads: slots.Slots{PerOrg: downloadsPerOrg, All: downloadsAll,
			Full: fmt.Sprintf("files of volumes are being downloaded by many requests at the same time, of which your "+
				"organisation may send %d: try again when one has ended, or use muster volume cp", downloadsPerOrg)},
		opening: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
	}
}

// A Tree is the files of a snapshot.
type Tree struct {
	Snapshot Snapshot
	f        *Files
	org      id.Org
	limit    int64 // of the volume, in bytes
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
// hidden, and, while its files are read, too, QuotaExceeded.
func (f *Files) Tree(ctx context.Context, org id.Org, vol id.Volume, seq int64) (*Tree, error) {
	if f.store == nil {
		return nil, errNoStore
	}
	have, err := f.catalog.Get(ctx, org, vol)
	if err != nil {
		return nil, err
	}
	if have.HiddenAt != nil {
		return nil, errHidden(have.Name)
	}
	if err := f.limiter.serveFiles(ctx, org, 0); err != nil {
		return nil, err
	}
	if seq == 0 {
		seq = have.HeadSeq
	}
	rows, err := f.d.Q.SnapshotAt(ctx, vol, seq)
	if err != nil {
		return nil, fmt.Errorf("snapshot %d of %s: %w", seq, vol, err)
	}
	if len(rows) == 0 {
		return nil, errNoSnapshot
	}
	d, err := f.d.Q.DomainOfVolume(ctx, vol)
	if err != nil {
		return nil, fmt.Errorf("data domain of %s: %w", vol, err)
	}
	if d.ErasedAt != nil { // its last volume was deleted since
		return nil, errNone
	}
	keys, err := openKeys(f.box, d.ID, d.KeySealed)
	if err != nil {
		return nil, err
	}
	return &Tree{
		Snapshot: snapshotOf(rows[0]), f: f, org: org, limit: have.SizeLimit, root: refOf(rows[0]),
		reader: manifest.Reader{Chunk: func(ctx context.Context, r manifest.Ref) ([]byte, error) {
			if err := f.limiter.serveFiles(ctx, org, int64(r.Length)); err != nil {
				return nil, err
			}
			return f.chunk(ctx, keys, d.ID, r)
		}},
	}, nil
}

func refOf(s dbq.VolumeSnapshot) manifest.Ref {
	return manifest.Ref{ID: chunk.ID(s.RootID), Pack: s.RootPack, Offset: uint32(s.RootOffset),
		Length: uint32(s.RootLength), Size: uint32(s.RootSize)}
}

// chunk reads a chunk from the store and opens it.
func (f *Files) chunk(ctx context.Context, keys *chunk.Keys, domain id.DataDomain, r manifest.Ref) ([]byte, error) {
	body, err := f.store.Read(ctx, store.Key(domain, r.Pack), int64(r.Offset), int64(r.Length))
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
	select {
	case f.opening <- struct{}{}:
		defer func() { <-f.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return keys.Open(r.ID, blob)
}

var errNoFile = fault.New(fault.NotFound, "file not found")

// readable turns the errors of reading a tree into faults.
func readable(err error) error {
	switch {
	case errors.Is(err, manifest.ErrNotFound):
		return errNoFile
	case errors.Is(err, manifest.ErrManyEntries):
		return fault.Wrap(err, fault.Conflict, "the folder, or one that leads to it, has more than %d entries: copy it with "+
			"muster volume cp, or mount the volume", MaxListed)
	case errors.Is(err, manifest.ErrCorrupt), errors.Is(err, chunk.ErrCorrupt), errors.Is(err, store.ErrNotFound):
		return fault.Wrap(err, fault.Unavailable, "the snapshot cannot be read: a part of it is lost or was changed")
	}
	return err
}

var errLongList = fault.New(fault.Conflict, "the folder, or one that leads to it, takes more than %d MiB: copy it "+
	"with muster volume cp, or mount the volume", maxDirBytes>>20)

// listing returns a reader of directories for one request.
func (t *Tree) listing() manifest.Reader {
	bytes, chunks := int64(maxDirBytes), maxDirChunks
	return manifest.Reader{MaxEntries: MaxListed, Chunk: func(ctx context.Context, r manifest.Ref) ([]byte, error) {
		if bytes, chunks = bytes-int64(r.Size), chunks-1; bytes < 0 || chunks < 0 {
			return nil, errLongList
		}
		return t.reader.Chunk(ctx, r)
	}}
}

// find returns the entry at a path below the root.
func (t *Tree) find(ctx context.Context, reader manifest.Reader, path string) (manifest.Entry, error) {
	root, err := reader.Root(ctx, t.root)
	if err != nil {
		return manifest.Entry{}, err
	}
	return reader.Find(ctx, root, path)
}

// List returns up to limit entries of a directory that follow a name, in the order of their names, and the name after
// which the next ones follow; "": there are no more. Of a file, it returns itself. Names that people see are not those
// that an entry has. Faults: NotFound, Unavailable, RateLimited, Conflict if the directory is too large.
func (t *Tree) List(ctx context.Context, path, after string, limit int) (files []File, next string, err error) {
	leave, err := t.f.reads.Take(ctx, t.org)
	if err != nil {
		return nil, "", err
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, folderTime)
	defer cancel()
	files, next, err = t.list(limited, path, after, min(limit, MaxPage))
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fault.Wrap(err, fault.Unavailable, "the folder could not be read in time: try it again")
	}
	return files, next, err
}

func (t *Tree) list(ctx context.Context, path, after string, limit int) (files []File, next string, err error) {
	reader := t.listing()
	dir, err := t.find(ctx, reader, path)
	if err != nil {
		return nil, "", readable(err)
	}
	if dir.Kind != manifest.Dir {
		return []File{fileOf(dir)}, "", nil
	}
	text, last := 0, ""
	for e, err := range reader.Entries(ctx, dir) {
		if err != nil {
			return nil, "", readable(err)
		}
		if e.Name <= after {
			continue
		}
		if text += len(e.Name) + len(e.Target); len(files) > 0 && (len(files) == limit || text > maxPageText) {
			return files, last, nil
		}
		files, last = append(files, fileOf(e)), e.Name
	}
	return files, "", nil
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

// Send sends the content of a file: begin gets the file and returns where its content goes, which all of it passes. An
// error before begin was called is the answer; after it, the content is cut off. Faults: NotFound, Unavailable,
// RateLimited, Conflict if it is no file or one that is too large.
func (t *Tree) Send(ctx context.Context, path string, begin func(File) io.Writer) error {
	leave, err := t.f.downloads.Take(ctx, t.org)
	if err != nil {
		return err
	}
	defer leave()
	e, err := t.find(ctx, t.listing(), path)
	if err != nil {
		return readable(err)
	}
	if e.Kind != manifest.File {
		return fault.New(fault.Conflict, "%s is not a file", agentapi.CleanText(path))
	}
	if err := sendable(e, max(t.limit, t.Snapshot.Bytes)); err != nil {
		return err
	}
	return readable(t.reader.Write(ctx, begin(fileOf(e)), e))
}

// sendable refuses a file that is more than what a volume of this size can hold, or more than one request may send: a
// few stored bytes may be a file without end. It is a pure function.
func sendable(e manifest.Entry, limit int64) error {
	holes := int64(0)
	for _, h := range e.Holes {
		holes += h.Length
	}
	switch data := e.Size - holes; {
	case data > limit:
		return readable(manifest.ErrCorrupt)
	case e.Size > MaxDownload:
		return fault.New(fault.Conflict, "the file has %d bytes, and a download at most %d: copy it with muster volume cp",
			e.Size, int64(MaxDownload))
	case holes > data+MaxHoles:
		return fault.New(fault.Conflict, "the file has %d bytes of holes, which a download would send: copy it with muster "+
			"volume cp", holes)
	}
	return nil
}
