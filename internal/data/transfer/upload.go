package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/packio"
	"github.com/musterhq/muster/internal/fault"
)

// An Upload puts a file or a folder of this machine into a volume. What the volume has under the same names is
// replaced, everything else stays.
type Upload struct {
	*Session
	From string
	// To is where in the volume it goes, by elements; none: the folder's content goes to the volume's root. Folders on the
	// way are made.
	To []string
	// Journal has what an earlier attempt has stored, and gets what this one stores; nil: none, as for Dry.
	Journal *Journal
	// Checksum: read all files. Otherwise one whose size and time are those in the volume has not changed.
	Checksum bool
	// Always: commit a snapshot even if the volume has everything already.
	Always   bool
	Dry      bool // store and commit nothing
	Limit    int64
	Progress func(Progress) // may be nil; called by one goroutine at a time
}

// Uploaded is what an upload came to.
type Uploaded struct {
	Seq         int64 // of the snapshot; 0 if dry or unchanged
	Unchanged   bool  // the volume had everything: no snapshot was made
	Files       int64 // of this machine
	Bytes       int64
	Read, Moved int64 // bytes that were read here, and sent
	LeftOut     int64 // devices, sockets and FIFOs
	Changed     int64 // files that changed while they were read
}

// missTries is how often an upload is stored again of which the store lost packs.
const missTries = 3

// Run uploads and commits.
func (u *Upload) Run(ctx context.Context) (out Uploaded, err error) {
	found, err := look(u.From)
	if err != nil {
		return out, fault.Wrap(err, fault.Invalid, "%s", err)
	}
	if found.root.e.Kind != manifest.Dir && len(u.To) == 0 {
		return out, fault.New(fault.Invalid, "name the file in the volume: VOLUME:/PATH")
	}
	w := &work{Upload: u, known: manifest.NewIndex(), lost: map[int64]bool{}}
	w.out = Uploaded{Files: found.files, Bytes: found.bytes, LeftOut: found.leftOut}
	w.progress.Total = found.bytes
	defer u.keepAlive(ctx, w.now)()
	if u.Journal != nil {
		if err := u.Journal.each(w.known.Add); err != nil {
			return out, err
		}
	}
	if err := w.readBase(ctx); err != nil {
		return out, err
	}
	for try := 1; ; try++ {
		s, err := w.store(ctx, found)
		if w.out.Unchanged = err == nil && !u.Always && u.Base != nil && s.Root == *u.Base; w.out.Unchanged {
			return w.out, nil
		}
		if err != nil || u.Dry {
			return w.out, err
		}
		var missing []int64
		err = u.retry(ctx, func() (err error) {
			w.out.Seq, missing, err = u.Remote.Commit(ctx, s)
			return err
		})
		if err != nil || len(missing) == 0 {
			return w.out, err
		}
		if try == missTries {
			return w.out, fault.New(fault.Unavailable, "the store has not kept what was sent to it, %d times", try)
		}
		for _, n := range missing {
			w.lost[n] = true
		}
		w.known.Forget(w.lost)
		w.progress = Progress{Total: found.bytes, Moved: w.progress.Moved}
	}
}

// work is the state of an upload.
type work struct {
	*Upload
	tree  *tree
	root  manifest.Root // of the base
	known *manifest.Index
	lost  map[int64]bool // packs that the store does not have

	send   *sender
	meta   manifest.Writer
	packs  *manifest.PackSet // of files that are not read
	files  int64             // of the new tree
	bytes  int64
	links  map[uint64]bool
	before int64 // sent by attempts before
	out    Uploaded

	mu       sync.Mutex
	progress Progress
}

func (w *work) now() Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.progress
}

func (w *work) done(bytes, files int64) {
	w.mu.Lock()
	w.progress.Done += bytes
	w.progress.Files += files
	w.progress.Moved = w.before + w.send.bytes()
	p := w.progress
	w.mu.Unlock()
	if w.Progress != nil {
		w.Progress(p)
	}
}

// readBase reads the tree that the upload changes, and learns which chunks are stored.
func (w *work) readBase(ctx context.Context) error {
	w.root = manifest.Root{Dir: manifest.Entry{Kind: manifest.Dir, Mode: 0o755}}
	if w.Base == nil {
		return nil
	}
	w.tree = newTree(w.Session)
	reader := manifest.Reader{Chunk: func(ctx context.Context, r manifest.Ref) ([]byte, error) {
		w.known.Add(r) // a folder that does not change is not sent again
		return w.tree.chunk(ctx, r)
	}}
	root, err := reader.Root(ctx, *w.Base)
	if err != nil {
		return unreadable(err)
	}
	w.root = root
	return unreadable(w.learn(ctx, reader, root.Dir, 0))
}

// unreadable explains why a snapshot cannot be read.
func unreadable(err error) error {
	if errors.Is(err, chunk.ErrCorrupt) || errors.Is(err, manifest.ErrCorrupt) || packio.Missing(err) {
		return fault.Wrap(err, fault.Unavailable, "the volume's snapshot cannot be read: a part of it is lost or was changed")
	}
	return err
}

// learn notes which chunks the files below a folder have.
func (w *work) learn(ctx context.Context, reader manifest.Reader, dir manifest.Entry, depth int) error {
	if depth > manifest.MaxDepth {
		return manifest.ErrCorrupt
	}
	var below []manifest.Entry // so that one folder at a time is being read
	for e, err := range reader.Entries(ctx, dir) {
		if err != nil {
			return err
		}
		switch e.Kind {
		case manifest.Dir:
			below = append(below, e)
		case manifest.File:
			for ref, err := range reader.Refs(ctx, e) {
				if err != nil {
					return err
				}
				w.known.Add(ref)
			}
		}
	}
	for _, e := range below {
		if err := w.learn(ctx, reader, e, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// store stores everything that the new tree needs.
func (w *work) store(ctx context.Context, found *scan) (s Snapshot, err error) {
	w.send = newSender(ctx, w.Session, w.known)
	w.send.dry = w.Dry
	if w.Journal != nil {
		w.send.stored = w.Journal.note
	}
	w.before = w.progress.Moved
	w.packs, w.files, w.bytes, w.links = manifest.NewPackSet(), 0, 0, map[uint64]bool{}
	w.meta = manifest.Writer{Put: func(b []byte) (manifest.Ref, error) { return w.send.put(manifestPacks, b) }}
	root, err := w.into(ctx, w.root.Dir, true, w.To, found.root)
	if err == nil && w.Limit > 0 && w.bytes > w.Limit {
		err = fault.New(fault.QuotaExceeded, "the files take %d bytes, and the volume has room for %d", w.bytes, w.Limit)
	}
	var ref manifest.Ref
	if err == nil {
		root.Name = ""
		s = Snapshot{Bytes: w.bytes, Files: w.files, LeftOut: found.leftOut}
		ref, err = w.meta.Root(manifest.Root{Dir: root, Files: w.files, LogicalBytes: w.bytes, LeftOut: found.leftOut})
	}
	err = w.send.finish(err)
	w.out.Moved = w.before + w.send.bytes()
	if err != nil {
		return s, err
	}
	w.packs.AddAll(w.send.used)
	s.Root, s.Packs = ref, w.packs.Encode()
	return s, nil
}

// into returns a folder of the new tree: the old one, with an upload at a path below it.
func (w *work) into(ctx context.Context, dir manifest.Entry, exists bool, to []string, l *local) (manifest.Entry,
	error) {
	if len(to) == 0 {
		return w.merge(ctx, dir, exists, l)
	}
	entries, err := w.entries(ctx, dir, exists)
	if err != nil {
		return dir, err
	}
	i, have := slices.BinarySearchFunc(entries, to[0], func(e manifest.Entry, name string) int {
		return compare(e.Name, name)
	})
	old := manifest.Entry{Name: to[0], Kind: manifest.Dir, Mode: 0o755, MTime: l.e.MTime}
	if have {
		old = entries[i]
	}
	var kid manifest.Entry
	switch {
	case len(to) == 1 && l.e.Kind == manifest.File && have && old.Kind == manifest.Dir:
		kid, err = w.into(ctx, old, true, []string{l.e.Name}, l) // as cp does
	case len(to) == 1 && l.e.Kind == manifest.File:
		kid, err = w.file(ctx, old, have, to[0], l)
	case old.Kind != manifest.Dir:
		err = fault.New(fault.Conflict, "%q in the volume is not a folder", to[0])
	default:
		kid, err = w.into(ctx, old, have, to[1:], l)
	}
	if err != nil {
		return dir, err
	}
	if !have {
		entries = slices.Insert(entries, i, manifest.Entry{})
	}
	entries[i] = kid
	if err := w.keep(ctx, entries, func(e manifest.Entry) bool { return e.Name != to[0] }); err != nil {
		return dir, err
	}
	return dir, w.meta.Dir(&dir, entries)
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (w *work) entries(ctx context.Context, dir manifest.Entry, exists bool) ([]manifest.Entry, error) {
	if !exists || w.Base == nil {
		return nil, nil
	}
	entries, err := w.tree.reader().Dir(ctx, dir)
	return entries, unreadable(err)
}

// merge returns a folder of the new tree: a folder of this machine over the old one, if that exists.
func (w *work) merge(ctx context.Context, dir manifest.Entry, exists bool, l *local) (manifest.Entry, error) {
	if err := ctx.Err(); err != nil {
		return dir, err
	}
	old, err := w.entries(ctx, dir, exists)
	if err != nil {
		return dir, err
	}
	byName := map[string]manifest.Entry{}
	for _, e := range old {
		byName[e.Name] = e
	}
	ours := map[string]bool{}
	var entries []manifest.Entry
	for _, k := range l.kids {
		ours[k.e.Name] = true
		was, have := byName[k.e.Name]
		e := k.e
		switch k.e.Kind {
		case manifest.Dir:
			if have && was.Kind != manifest.Dir {
				return dir, fault.New(fault.Conflict, "%s is a folder here, and not in the volume: remove one of them", k.path)
			}
			if !have {
				was = e
			}
			was.Mode, was.MTime = e.Mode, e.MTime
			e, err = w.merge(ctx, was, have, k)
		default:
			if have && was.Kind == manifest.Dir {
				return dir, fault.New(fault.Conflict, "%s is a folder in the volume, and not here: remove one of them", k.path)
			}
			if k.e.Kind == manifest.Symlink {
				w.files++
				break
			}
			e, err = w.file(ctx, was, have, k.e.Name, k)
		}
		if err != nil {
			return dir, err
		}
		entries = append(entries, e)
	}
	if err := w.keep(ctx, old, func(e manifest.Entry) bool { return !ours[e.Name] }); err != nil {
		return dir, err
	}
	for _, e := range old {
		if !ours[e.Name] {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b manifest.Entry) int { return compare(a.Name, b.Name) })
	return dir, w.meta.Dir(&dir, entries)
}

// keep counts what stays of the old tree, and the packs that it needs.
func (w *work) keep(ctx context.Context, entries []manifest.Entry, stays func(manifest.Entry) bool) error {
	for _, e := range entries {
		if !stays(e) {
			continue
		}
		if e.Kind != manifest.Dir {
			w.files++
			if e.Kind == manifest.File && (e.Link == 0 || !w.links[e.Link]) {
				w.bytes += dense(e)
				w.links[e.Link] = e.Link != 0
			}
		}
		if err := w.need(ctx, e); err != nil {
			return err
		}
		if e.Kind != manifest.Dir {
			continue
		}
		below, err := w.entries(ctx, e, true)
		if err == nil {
			err = w.keep(ctx, below, func(manifest.Entry) bool { return true })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dense is the size of a file without its holes.
func dense(e manifest.Entry) int64 {
	n := e.Size
	for _, h := range e.Holes {
		n -= h.Length
	}
	return n
}

// need adds the packs of an entry whose content is not read here: its chunks, and the chunks that list them.
func (w *work) need(ctx context.Context, e manifest.Entry) error {
	note := func(r manifest.Ref) error {
		if w.lost[r.Pack] {
			return fault.New(fault.Unavailable, "the store has lost a part of %q in the volume: upload it, too, or restore an "+
				"earlier snapshot", e.Name)
		}
		w.packs.Add(r.Pack)
		return nil
	}
	for _, r := range e.Body.Refs {
		if err := note(r); err != nil {
			return err
		}
	}
	if e.Body.Lists == 0 {
		return nil
	}
	r := w.tree.reader()
	r.Chunk = func(ctx context.Context, ref manifest.Ref) ([]byte, error) {
		if err := note(ref); err != nil {
			return nil, err
		}
		return w.tree.chunk(ctx, ref)
	}
	for ref, err := range r.Content(ctx, e) {
		if err == nil {
			err = note(ref)
		}
		if err != nil {
			return unreadable(err)
		}
	}
	return nil
}

// openRegular opens a file that may have become something else since the folder was read: opening a FIFO would block
// forever.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file any more", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// file returns the entry of a file of this machine, whose chunks are stored or on their way.
func (w *work) file(ctx context.Context, old manifest.Entry, have bool, name string, l *local) (manifest.Entry, error) {
	e := l.e
	e.Name = name
	w.files++
	if have && old.Kind == manifest.File && !w.Checksum && old.Size == e.Size && old.MTime == e.MTime {
		if err := w.need(ctx, old); err == nil { // else it is read here
			e.Body, e.Holes = old.Body, old.Holes
			w.bytes += dense(e)
			w.done(e.Size, 1)
			return e, nil
		}
	}
	f, err := openRegular(l.path)
	if err != nil {
		return e, fault.Wrap(err, fault.Invalid, "%s", err)
	}
	defer f.Close()
	var refs []manifest.Ref
	e.Size = 0
	for s := chunk.NewSplitter(f); ; {
		b, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return e, fault.Wrap(err, fault.Invalid, "%s", err)
		}
		ref, err := w.send.put(dataPacks, b)
		if err != nil {
			return e, err
		}
		refs = append(refs, ref)
		e.Size += int64(len(b))
		w.out.Read += int64(len(b))
		w.done(int64(len(b)), 0)
	}
	w.bytes += e.Size
	w.done(0, 1)
	if info, err := f.Stat(); err != nil || info.Size() != l.e.Size || info.ModTime().UnixNano() != l.e.MTime {
		w.out.Changed++
		e.MTime-- // the next upload reads it again
	}
	e.Body, err = w.meta.Content(refs)
	if err != nil {
		return e, fmt.Errorf("%s: %w", l.path, err)
	}
	return e, nil
}
