package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

// Progress is how far a restore is, in bytes of files.
type Progress struct{ Done, Total int64 }

// Restore writes the volume's last commit into its empty file system, before the workload starts. What is read from
// the store is checked chunk by chunk, and what a manifest names is created below the volume's folder only. Restoring
// twice is no error. After an error the file system must be made again.
func (v *Volume) Restore(ctx context.Context, progress func(Progress)) error {
	v.turn.Lock()
	defer v.turn.Unlock()
	if v.Restored() {
		return nil
	}
	state := stateFile{}
	if v.base != nil {
		r := &restore{v: v, packs: newPackReader(&v.remote, v.keys), progress: progress, total: v.base.LogicalBytes,
			links: map[linked]*restored{}}
		root, err := refOf(v.base.Root)
		if err == nil {
			err = v.offer(r.packs)
		}
		if err == nil {
			err = r.run(ctx, root)
		}
		if err != nil {
			return fmt.Errorf("restore snapshot %s: %w", v.base.ID, err)
		}
		state = stateFile{Snapshot: v.base.ID, Seq: v.base.Seq, Meta: r.meta}
		if v.cfg.Mount.Mode != agentapi.MountRO {
			if state.Tree, err = r.look(ctx); err != nil {
				return fmt.Errorf("look at what was restored: %w", err)
			}
		}
	}
	if err := v.save(stateName, state); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.state, v.ready = state, true
	return nil
}

// Limits of a restore, whatever the manifest says. maxMemory is enough for a tree of maxEntries files with maxPieces
// chunks, which is about 1 TB of data.
const (
	maxPieces = 4 << 20
	maxMemory = 1 << 30
)

// errTooMuch is the error of a manifest that is more than a host restores.
var errTooMuch = errors.New("it is more than a host restores")

// Unrestorable reports whether a restore failed because of what was stored: it fails again whenever it is tried.
func Unrestorable(err error) bool {
	return errors.Is(err, manifest.ErrCorrupt) || errors.Is(err, errTooMuch)
}

// place is where an entry is below the volume's folder; nil is that folder.
type place struct {
	in    *place
	name  string
	depth int
}

func (p *place) below(name string) *place {
	if p == nil {
		return &place{name: name, depth: 1}
	}
	return &place{in: p, name: name, depth: p.depth + 1}
}

// path returns the names that lead to a place.
func (p *place) path() []string {
	if p == nil {
		return nil
	}
	out := make([]string, p.depth)
	for ; p != nil; p = p.in {
		out[p.depth-1] = p.name
	}
	return out
}

// restored is a file of the restore.
type restored struct {
	at          *place
	size, mtime int64
	holes       []manifest.Extent
	refs        []manifest.Ref
	names       []*place // of a file with several names, the others
}

// restoredDir is a folder of the restore.
type restoredDir struct {
	at    *place
	mtime int64
}

// What the restore keeps of each in memory, in bytes, without names.
const (
	fileMemory  = 208
	dirMemory   = 96
	openMemory  = 256 // of a folder whose entries are not read yet
	holeMemory  = 16
	refMemory   = 56
	pieceMemory = refMemory + 16
)

// needed is a chunk that a file needs: refs[ref] of files[file].
type needed struct {
	file, ref int32
	off       int64 // in the content without holes
}

// piece is where a chunk belongs.
type piece struct {
	file int32
	off  int64 // in the content without holes
	ref  manifest.Ref
}

// linked is what the names of one file have in common. A number alone is not enough: it is a host's.
type linked struct {
	number uint64
	size   int64
	first  chunk.ID
}

func linkedOf(e manifest.Entry) linked {
	l := linked{number: e.Link, size: e.Size}
	if len(e.Body.Refs) > 0 {
		l.first = e.Body.Refs[0].ID
	}
	return l
}

type restore struct {
	v        *Volume
	packs    *packReader
	progress func(Progress)
	total    int64
	files    []*restored
	dirs     []restoredDir
	links    map[linked]*restored
	needs    []needed
	meta     []manifest.Ref
	entries  int64
	bytes    int64
	room     int64
	memory   int64 // that is taken

	mu   sync.Mutex
	done int64
}

// take notes memory that is about to be taken for good.
func (r *restore) take(n int64) error {
	if r.memory += n; r.memory > maxMemory {
		return fmt.Errorf("the list of the snapshot's files takes more than %d MiB of memory: %w", maxMemory>>20, errTooMuch)
	}
	return nil
}

func (r *restore) run(ctx context.Context, root manifest.Ref) error {
	reader := manifest.Reader{Chunk: func(ctx context.Context, ref manifest.Ref) ([]byte, error) {
		if err := r.take(refMemory); err != nil {
			return nil, err
		}
		r.meta = append(r.meta, ref)
		return r.packs.chunk(ctx, ref)
	}}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(r.v.data.Fd()), &st); err != nil {
		return fmt.Errorf("look at the volume's room: %w", err)
	}
	r.room = int64(st.Bavail) * st.Bsize
	tree, err := reader.Root(ctx, root)
	if err != nil {
		return err
	}
	if err := apply(int(r.v.data.Fd()), tree.Dir); err != nil {
		return err
	}
	// A folder is read after the one that it is in, so that one at a time is in memory.
	open := []folder{{nil, tree.Dir}}
	for len(open) > 0 {
		next := open[len(open)-1]
		open = open[:len(open)-1]
		r.memory -= next.memory()
		if open, err = r.folder(ctx, reader, next, open); err != nil {
			return err
		}
	}
	if err := r.content(ctx); err != nil {
		return err
	}
	return r.times()
}

// folder is one whose entries are not restored yet.
type folder struct {
	at *place
	e  manifest.Entry
}

func (f folder) memory() int64 { return openMemory + refMemory*int64(len(f.e.Body.Refs)) }

// folder creates the entries of a folder: files without content, of their size. It adds the folders in it to open.
func (r *restore) folder(ctx context.Context, reader manifest.Reader, f folder, open []folder) ([]folder, error) {
	if f.at != nil && f.at.depth > manifest.MaxDepth {
		return nil, manifest.ErrCorrupt
	}
	r.dirs = append(r.dirs, restoredDir{f.at, f.e.MTime})
	fd, err := walkTo(int(r.v.data.Fd()), f.at.path())
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for e, err := range reader.Entries(ctx, f.e) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if r.entries++; r.entries > maxEntries {
			return nil, fmt.Errorf("the snapshot has more than %d files: %w", maxEntries, errTooMuch)
		}
		switch e.Kind {
		case manifest.Dir:
			below := folder{f.at.below(e.Name), manifest.Entry{Kind: e.Kind, MTime: e.MTime, Size: e.Size, Body: e.Body}}
			if err := r.take(dirMemory + int64(len(e.Name)) + below.memory()); err != nil {
				return nil, err
			}
			if err := subfolder(fd, e); err != nil {
				return nil, fmt.Errorf("create a folder: %w", err)
			}
			open = append(open, below)
		case manifest.Symlink:
			if err := link(fd, e); err != nil {
				return nil, fmt.Errorf("create a link: %w", err)
			}
		case manifest.File:
			if err := r.file(ctx, reader, fd, e, f.at.below(e.Name)); err != nil {
				return nil, err
			}
		}
	}
	return open, nil
}

// subfolder creates a folder with everything but its time.
func subfolder(dir int, e manifest.Entry) error {
	if err := unix.Mkdirat(dir, e.Name, 0o700); err != nil {
		return err
	}
	fd, err := openDir(dir, e.Name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return apply(fd, e)
}

// link creates a symbolic link. Its target is text; nothing follows it here.
func link(dir int, e manifest.Entry) error {
	if err := unix.Symlinkat(e.Target, dir, e.Name); err != nil {
		return err
	}
	if err := unix.Fchownat(dir, e.Name, int(e.UID), int(e.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return unix.UtimesNanoAt(dir, e.Name, timesOf(e.MTime), unix.AT_SYMLINK_NOFOLLOW)
}

func timesOf(ns int64) []unix.Timespec {
	t := unix.NsecToTimespec(ns)
	return []unix.Timespec{t, t}
}

// file creates a file with everything but its content and its time.
func (r *restore) file(ctx context.Context, reader manifest.Reader, dir int, e manifest.Entry, at *place) error {
	if err := r.take(fileMemory + int64(len(e.Name)) + holeMemory*int64(len(e.Holes))); err != nil {
		return err
	}
	same := linkedOf(e)
	if first := r.links[same]; e.Link != 0 && first != nil {
		from, err := walkTo(int(r.v.data.Fd()), first.at.in.path())
		if err != nil {
			return err
		}
		defer unix.Close(from)
		first.names = append(first.names, at)
		if err := unix.Linkat(from, first.at.name, dir, e.Name, 0); err != nil {
			return fmt.Errorf("create a second name of a file: %w", err)
		}
		return nil
	}
	fd, err := openIn(dir, e.Name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, e.Size); err != nil {
		return fmt.Errorf("create a file of %d bytes: %w", e.Size, err)
	}
	if err := apply(fd, e); err != nil {
		return err
	}
	if r.bytes += denseOffset(e.Holes, e.Size); r.bytes > r.room || r.bytes < 0 {
		return fmt.Errorf("the snapshot has more than the %d bytes that the volume has room for", r.room)
	}
	f := &restored{at: at, size: e.Size, mtime: e.MTime, holes: e.Holes,
		refs: make([]manifest.Ref, 0, len(e.Body.Refs))}
	if e.Link != 0 {
		r.links[same] = f
	}
	off := int64(0)
	for ref, err := range reader.Refs(ctx, e) {
		if err == nil {
			err = r.take(pieceMemory)
		}
		if err != nil {
			return err
		}
		if len(r.needs) == maxPieces {
			return fmt.Errorf("the snapshot has more than %d chunks: %w", maxPieces, errTooMuch)
		}
		r.needs = append(r.needs, needed{int32(len(r.files)), int32(len(f.refs)), off})
		f.refs = append(f.refs, ref)
		off += int64(ref.Size)
	}
	r.files = append(r.files, f)
	return nil
}

// content fills the files, pack by pack: each pack is read once, by several at a time.
func (r *restore) content(ctx context.Context) error {
	slices.SortFunc(r.needs, func(a, b needed) int {
		x, y := r.refOf(a), r.refOf(b)
		return cmp.Or(cmp.Compare(x.Pack, y.Pack), cmp.Compare(x.Offset, y.Offset), cmp.Compare(a.file, b.file),
			cmp.Compare(a.off, b.off))
	})
	parts := map[int64][]needed{}
	var order []int64
	for from := 0; from < len(r.needs); {
		n, to := r.refOf(r.needs[from]).Pack, from
		for to < len(r.needs) && r.refOf(r.needs[to]).Pack == n {
			to++
		}
		parts[n], order = r.needs[from:to], append(order, n)
		from = to
	}
	if peers := r.v.cfg.Peers; peers != nil {
		order = peers.Order(order)
	}
	r.packs.will(order)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for _, n := range order {
		g.Go(func() error {
			for part := range slices.Chunk(parts[n], piecesAtOnce) {
				if err := r.pack(ctx, r.piecesOf(part)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// piecesAtOnce is for how many pieces of a pack it is read once: more than it has chunks.
const piecesAtOnce = 64 << 10

func (r *restore) refOf(n needed) *manifest.Ref { return &r.files[n.file].refs[n.ref] }

func (r *restore) piecesOf(needs []needed) []piece {
	out := make([]piece, len(needs))
	for i, n := range needs {
		out[i] = piece{n.file, n.off, *r.refOf(n)}
	}
	return out
}

// pack fills in all pieces of one pack.
func (r *restore) pack(ctx context.Context, pieces []piece) error {
	file, fd := int32(-1), -1
	defer func() {
		if fd >= 0 {
			unix.Close(fd)
		}
	}()
	return r.packs.each(ctx, pieces, func(pieces []piece, b []byte) (err error) {
		for _, x := range pieces {
			if x.file != file {
				if fd >= 0 {
					unix.Close(fd)
				}
				if fd, err = r.openFile(r.files[x.file]); err != nil {
					return err
				}
				file = x.file
			}
			if err := writeDense(fd, r.files[x.file].holes, x.off, b); err != nil {
				return fmt.Errorf("write a restored file: %w", err)
			}
			r.note(int64(len(b)))
		}
		return nil
	})
}

func (r *restore) note(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done += n
	if r.progress != nil {
		r.progress(Progress{Done: r.done, Total: max(r.total, r.done)})
	}
}

func (r *restore) openFile(f *restored) (int, error) {
	dir, err := walkTo(int(r.v.data.Fd()), f.at.in.path())
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return openIn(dir, f.at.name, unix.O_WRONLY, 0)
}

// writeDense writes at an offset of a file's content without holes.
func writeDense(fd int, holes []manifest.Extent, off int64, b []byte) error {
	at, i := off, 0
	for ; i < len(holes) && holes[i].Offset <= at; i++ {
		at += holes[i].Length
	}
	for len(b) > 0 {
		n := int64(len(b))
		if i < len(holes) {
			n = min(n, holes[i].Offset-at)
		}
		for part := b[:n]; len(part) > 0; {
			k, err := unix.Pwrite(fd, part, at)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return err
			}
			k = max(k, 0)
			part, at = part[k:], at+int64(k)
		}
		b = b[n:]
		if i < len(holes) && at == holes[i].Offset {
			at, i = at+holes[i].Length, i+1
		}
	}
	return nil
}

// times sets the times of modification: of folders after everything in them.
func (r *restore) times() error {
	for _, f := range r.files {
		dir, err := walkTo(int(r.v.data.Fd()), f.at.in.path())
		if err != nil {
			return err
		}
		err = unix.UtimesNanoAt(dir, f.at.name, timesOf(f.mtime), unix.AT_SYMLINK_NOFOLLOW)
		unix.Close(dir)
		if err != nil {
			return fmt.Errorf("set times: %w", err)
		}
	}
	for _, d := range slices.Backward(r.dirs) {
		fd, err := walkTo(int(r.v.data.Fd()), d.at.path())
		if err != nil {
			return err
		}
		err = unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), timesOf(d.mtime), 0)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("set times: %w", err)
		}
	}
	return nil
}

// apply sets owner, permissions and attributes.
func apply(fd int, e manifest.Entry) error {
	for _, x := range e.XAttrs {
		if err := unix.Fsetxattr(fd, x.Name, []byte(x.Value), 0); err != nil {
			return fmt.Errorf("set an attribute: %w", err)
		}
	}
	if err := unix.Fchown(fd, int(e.UID), int(e.GID)); err != nil {
		return fmt.Errorf("set an owner: %w", err)
	}
	if err := unix.Fchmod(fd, e.Mode&0o1777); err != nil {
		return fmt.Errorf("set permissions: %w", err)
	}
	return nil
}

// look makes the tree of what was restored, with clones, as a snapshot would: the first one after it then sends only
// what has changed.
func (r *restore) look(ctx context.Context) (*tree, error) {
	c := cut{data: int(r.v.data.Fd()), clones: r.v.clones, tick: r.v.tick, now: time.Now}
	t, err := c.pass(ctx, nil)
	if err != nil {
		return nil, err
	}
	for _, f := range r.files {
		for _, at := range append(f.names, f.at) {
			n := t.at(at.path())
			if n == nil || !n.isFile() || n.Size != f.size {
				return nil, errors.New("a restored file has changed before the workload began")
			}
			n.Done, n.Refs, n.Holes = true, f.refs, f.holes
		}
	}
	return t, nil
}
