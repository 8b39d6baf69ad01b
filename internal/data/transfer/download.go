package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/fault"
)

// A Download writes a file or a folder of a snapshot to this machine. What lies there under other names stays.
type Download struct {
	*Session
	From string // path in the snapshot; "" or "/": all of it
	// To is where it goes: the content of a folder into this folder, which is made; a file under this name, or into the
	// folder if it is one.
	To       string
	Dry      bool // write nothing
	Progress func(Progress)
}

// Downloaded is what a download came to.
type Downloaded struct {
	Files, Bytes int64
	Moved        int64 // bytes received from the store
	Kept         int64 // bytes that were here already
}

// partSuffix ends the name of a file that is not whole yet.
const partSuffix = ".muster-part"

// Run downloads.
func (d *Download) Run(ctx context.Context) (out Downloaded, err error) {
	if d.Base == nil {
		return out, fault.New(fault.NotFound, "the volume is empty")
	}
	w := &writer{Download: d, tree: newTree(d.Session)}
	defer d.keepAlive(ctx, w.now)()
	root, err := w.tree.reader().Root(ctx, *d.Base)
	if err != nil {
		return out, unreadable(err)
	}
	e, err := w.tree.reader().Find(ctx, root, d.From)
	if errors.Is(err, manifest.ErrNotFound) {
		return out, fault.New(fault.NotFound, "%s not found in the volume", d.From)
	}
	if err != nil {
		return out, unreadable(err)
	}
	if err := w.plan(ctx, e, "", 0); err != nil {
		return out, unreadable(err)
	}
	w.out.Files = int64(len(w.files) + len(w.links))
	if d.Dry {
		return w.out, nil
	}
	dir, name := d.To, "."
	if e.Kind != manifest.Dir {
		dir, name = filepath.Split(d.To)
		if info, err := os.Stat(d.To); err == nil && info.IsDir() || name == "" {
			dir, name = d.To, e.Name
		}
		w.rename(name)
	}
	if err := w.write(ctx, filepath.Clean(dir)); err != nil {
		return w.out, unreadable(err)
	}
	return w.out, nil
}

// item is a file, a folder or a link to write, at a path below the target.
type item struct {
	at string
	e  manifest.Entry
}

// maxItems is how many files and folders a download lists in memory, more than a host puts into a volume.
const maxItems = 4 << 20

type writer struct {
	*Download
	tree  *tree
	items int
	dirs  []item
	files []item
	links []item
	root  *os.Root
	out   Downloaded

	mu   sync.Mutex
	done Progress
}

func (w *writer) now() Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

// plan lists what to write, in the order of names.
func (w *writer) plan(ctx context.Context, e manifest.Entry, at string, depth int) error {
	switch {
	case depth > manifest.MaxDepth:
		return manifest.ErrCorrupt
	case e.Kind == manifest.File:
		w.files = append(w.files, item{at, e})
		w.out.Bytes += e.Size
		return nil
	case e.Kind == manifest.Symlink:
		w.links = append(w.links, item{at, e})
		return nil
	}
	w.dirs = append(w.dirs, item{at, e})
	var below []manifest.Entry // so that one folder at a time is being read
	for k, err := range w.tree.reader().Entries(ctx, e) {
		if err != nil {
			return err
		}
		if w.items++; w.items > maxItems {
			return fault.New(fault.Conflict, "the folder has more than %d files: download a part of it", maxItems)
		}
		if k.Kind == manifest.Dir {
			below = append(below, k)
			continue
		}
		if err := w.plan(ctx, k, path.Join(at, k.Name), depth+1); err != nil {
			return err
		}
	}
	for _, k := range below {
		if err := w.plan(ctx, k, path.Join(at, k.Name), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// rename gives the only file its name.
func (w *writer) rename(name string) {
	for _, list := range [][]item{w.files, w.links} {
		for i := range list {
			list[i].at = name
		}
	}
}

func (w *writer) write(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return refusedHere(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return refusedHere(err)
	}
	defer root.Close()
	w.root = root
	w.mu.Lock()
	w.done.Total = w.out.Bytes
	w.mu.Unlock()
	for _, d := range w.dirs {
		if d.at == "" {
			continue
		}
		// Folders are writable until everything is in them.
		if err := root.Mkdir(name(d.at), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return refusedHere(err)
		}
		if info, err := root.Lstat(name(d.at)); err != nil || !info.IsDir() {
			return fault.New(fault.Conflict, "%s is not a folder here", filepath.Join(dir, name(d.at)))
		}
	}
	for _, f := range w.files {
		if err := w.file(ctx, f); err != nil {
			return err
		}
	}
	for _, l := range w.links {
		if err := w.link(l); err != nil {
			return err
		}
	}
	for _, d := range slices.Backward(w.dirs) {
		if d.at != "" {
			w.attributes(d)
		}
	}
	return nil
}

func name(at string) string { return filepath.FromSlash(at) }

// refusedHere is the fault of something that this machine refuses.
func refusedHere(err error) error { return fault.Wrap(err, fault.Invalid, "%s", err) }

// attributes sets permissions and time. A file system that cannot keep them is no reason to fail.
func (w *writer) attributes(i item) {
	t := time.Unix(0, i.e.MTime)
	_ = w.root.Chmod(name(i.at), fs.FileMode(i.e.Mode&0o777))
	_ = w.root.Chtimes(name(i.at), t, t)
}

func (w *writer) link(l item) error {
	if have, err := w.root.Readlink(name(l.at)); err == nil && filepath.ToSlash(have) == l.e.Target {
		return nil
	}
	part := name(l.at) + partSuffix
	if err := w.root.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return refusedHere(err)
	}
	if err := w.root.Symlink(filepath.FromSlash(l.e.Target), part); err != nil {
		return refusedHere(err)
	}
	if err := w.root.Rename(part, name(l.at)); err != nil {
		return refusedHere(err)
	}
	return nil
}

// file writes a file next to its place and then moves it there. A part that an earlier attempt left is reused as far as
// its chunks are those of the file; if the file at its place has all of them, nothing is written.
func (w *writer) file(ctx context.Context, f item) error {
	if strings.HasSuffix(f.e.Name, partSuffix) {
		return fault.New(fault.Conflict, "%s: names in the volume that end with %s cannot be downloaded", f.at, partSuffix)
	}
	refs, err := w.refs(ctx, f.e)
	if err != nil {
		return err
	}
	if info, err := w.root.Lstat(name(f.at)); err == nil && info.Mode().IsRegular() && info.Size() == f.e.Size {
		if n := w.same(name(f.at), f.e, refs); n == len(refs) {
			w.kept(f.e.Size)
			w.attributes(f)
			return nil
		}
	}
	part := name(f.at) + partSuffix
	have := w.same(part, f.e, refs)
	if have < 0 { // not ours, perhaps a link: it is never written through
		have = 0
		if err := w.root.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return refusedHere(err)
		}
	}
	out, err := w.root.OpenFile(part, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return refusedHere(err)
	}
	err = w.fill(ctx, out, f.e, refs, have)
	err = errors.Join(err, out.Close())
	if err != nil {
		return err
	}
	if err := w.root.Rename(part, name(f.at)); err != nil {
		return refusedHere(err)
	}
	w.attributes(f)
	w.note(0, 1, 0)
	return nil
}

func (w *writer) note(bytes, files, moved int64) {
	w.mu.Lock()
	w.done.Done, w.done.Files, w.done.Moved = w.done.Done+bytes, w.done.Files+files, w.done.Moved+moved
	p := w.done
	w.mu.Unlock()
	w.out.Moved = p.Moved
	if w.Progress != nil {
		w.Progress(p)
	}
}

func (w *writer) kept(bytes int64) {
	w.out.Kept += bytes
	w.note(bytes, 1, 0)
}

func (w *writer) refs(ctx context.Context, e manifest.Entry) (out []manifest.Ref, err error) {
	for ref, err := range w.tree.reader().Refs(ctx, e) {
		if err != nil {
			return nil, err
		}
		out = append(out, ref)
	}
	return out, nil
}

// same returns how many of the first chunks of a file are in a file here; -1 if it is no file that could have them.
func (w *writer) same(at string, e manifest.Entry, refs []manifest.Ref) int {
	info, err := w.root.Lstat(at)
	if err != nil || !info.Mode().IsRegular() {
		return -1
	}
	f, err := w.root.Open(at)
	if err != nil {
		return -1
	}
	defer f.Close()
	if !zeroHoles(f, e) {
		return -1
	}
	off := int64(0)
	for i, r := range refs {
		b := make([]byte, r.Size)
		if !eachPart(e.Holes, off, b, func(p []byte, at int64) error {
			_, err := io.ReadFull(io.NewSectionReader(f, at, int64(len(p))), p)
			return err
		}) || w.Keys.ID(b) != r.ID {
			return i
		}
		off += int64(r.Size)
	}
	return len(refs)
}

// zeroHoles reports whether a file has only zeros where another one has holes.
func zeroHoles(f *os.File, e manifest.Entry) bool {
	b := make([]byte, 256<<10)
	for _, h := range e.Holes {
		for r := io.NewSectionReader(f, h.Offset, h.Length); ; {
			n, err := r.Read(b)
			if slices.ContainsFunc(b[:n], func(c byte) bool { return c != 0 }) {
				return false
			}
			if err != nil {
				break
			}
		}
	}
	return true
}

// eachPart calls f with the parts of a chunk and where each is in the file: holes lie between. off counts without them.
func eachPart(holes []manifest.Extent, off int64, b []byte, f func(p []byte, at int64) error) bool {
	at, i := off, 0
	for ; i < len(holes) && holes[i].Offset <= at; i++ {
		at += holes[i].Length
	}
	for len(b) > 0 {
		n := int64(len(b))
		if i < len(holes) {
			n = min(n, holes[i].Offset-at)
		}
		if f(b[:n], at) != nil {
			return false
		}
		b, at = b[n:], at+n
		if i < len(holes) && at == holes[i].Offset {
			at, i = at+holes[i].Length, i+1
		}
	}
	return true
}

// run is a range of a pack with the chunks in it, in the order of the file.
type run struct {
	refs     []manifest.Ref
	from, to int64
	b        []byte
	ready    chan error
}

// runsOf groups consecutive chunks that lie in one pack.
func runsOf(refs []manifest.Ref) (out []*run) {
	for _, r := range refs {
		from, to := int64(r.Offset), int64(r.Offset)+int64(r.Length)
		if n := len(out); n > 0 && out[n-1].refs[0].Pack == r.Pack {
			last := out[n-1]
			last.refs, last.from, last.to = append(last.refs, r), min(last.from, from), max(last.to, to)
			continue
		}
		out = append(out, &run{refs: []manifest.Ref{r}, from: from, to: to, ready: make(chan error, 1)})
	}
	return out
}

// fill writes the chunks of a file that it does not have yet. Several ranges are read at once, and written in their
// order, so that a part is a beginning of the file.
func (w *writer) fill(ctx context.Context, out *os.File, e manifest.Entry, refs []manifest.Ref, have int) error {
	off := int64(0)
	for _, r := range refs[:have] {
		off += int64(r.Size)
	}
	w.out.Kept += off
	w.note(off, 0, 0)
	if have == 0 {
		if err := out.Truncate(0); err != nil {
			return refusedHere(err)
		}
	}
	if err := out.Truncate(e.Size); err != nil { // holes are not written
		return refusedHere(err)
	}
	runs := runsOf(refs[have:])
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight + 1)
	ahead := make(chan struct{}, inFlight) // ranges that are read, or in memory
	g.Go(func() error {
		for _, r := range runs {
			if err := w.writeRun(ctx, out, e, r, &off); err != nil {
				return err
			}
			<-ahead
		}
		return nil
	})
	for _, r := range runs {
		select {
		case ahead <- struct{}{}:
		case <-ctx.Done():
			return g.Wait()
		}
		g.Go(func() (err error) {
			r.b, err = w.get(ctx, r.refs[0].Pack, r.from, r.to-r.from)
			r.ready <- err
			return err
		})
	}
	return g.Wait()
}

func (w *writer) writeRun(ctx context.Context, out *os.File, e manifest.Entry, r *run, off *int64) error {
	select {
	case err := <-r.ready:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, ref := range r.refs {
		if ctx.Err() != nil { // all that is left may be in memory already
			return context.Cause(ctx)
		}
		b, err := w.open(ctx, ref, r.b[int64(ref.Offset)-r.from:int64(ref.Offset)+int64(ref.Length)-r.from])
		if err != nil {
			return err
		}
		var failed error
		eachPart(e.Holes, *off, b, func(p []byte, at int64) error {
			_, failed = out.WriteAt(p, at)
			return failed
		})
		if failed != nil {
			return fmt.Errorf("write %s: %w", out.Name(), failed)
		}
		*off += int64(ref.Size)
		w.note(int64(ref.Size), 0, int64(ref.Length))
	}
	r.b = nil
	return nil
}
