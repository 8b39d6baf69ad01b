package volume

import (
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

// maxPieces limits the memory that a manifest can take: about 1 TB of data.
const maxPieces = 4 << 20

// restored is a file or folder of the restore.
type restored struct {
	path  []string
	entry manifest.Entry
	refs  []manifest.Ref
	names [][]string // of a file with several names, the others
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
	dirs     []*restored
	links    map[linked]*restored
	pieces   []piece
	meta     []manifest.Ref
	entries  int64
	bytes    int64
	room     int64

	mu   sync.Mutex
	done int64
}

func (r *restore) run(ctx context.Context, root manifest.Ref) error {
	reader := manifest.Reader{Chunk: func(ctx context.Context, ref manifest.Ref) ([]byte, error) {
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
	if err := r.folder(ctx, reader, tree.Dir, nil); err != nil {
		return err
	}
	if err := r.content(ctx); err != nil {
		return err
	}
	return r.attributes()
}

// folder creates the entries of a folder: files without content, of their size.
func (r *restore) folder(ctx context.Context, reader manifest.Reader, dir manifest.Entry, path []string) error {
	if len(path) > manifest.MaxDepth {
		return manifest.ErrCorrupt
	}
	r.dirs = append(r.dirs, &restored{path: path, entry: withoutBody(dir)})
	entries, err := reader.Dir(ctx, dir)
	if err != nil {
		return err
	}
	fd, err := walkTo(int(r.v.data.Fd()), path)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.entries++; r.entries > maxEntries {
			return errors.New("the snapshot has more files than a volume may have")
		}
		below := append(slices.Clone(path), e.Name)
		switch e.Kind {
		case manifest.Dir:
			if err := unix.Mkdirat(fd, e.Name, 0o700); err != nil {
				return fmt.Errorf("create a folder: %w", err)
			}
			if err := r.folder(ctx, reader, e, below); err != nil {
				return err
			}
		case manifest.Symlink:
			if err := link(fd, e); err != nil {
				return fmt.Errorf("create a link: %w", err)
			}
		case manifest.File:
			if err := r.file(ctx, reader, fd, e, below); err != nil {
				return err
			}
		}
	}
	return nil
}

func withoutBody(e manifest.Entry) manifest.Entry {
	e.Body = manifest.Content{}
	return e
}

// link creates a symbolic link. Its target is text; nothing follows it here.
func link(dir int, e manifest.Entry) error {
	if err := unix.Symlinkat(e.Target, dir, e.Name); err != nil {
		return err
	}
	if err := unix.Fchownat(dir, e.Name, int(e.UID), int(e.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return unix.UtimesNanoAt(dir, e.Name, timesOf(e), unix.AT_SYMLINK_NOFOLLOW)
}

func timesOf(e manifest.Entry) []unix.Timespec {
	t := unix.NsecToTimespec(e.MTime)
	return []unix.Timespec{t, t}
}

func (r *restore) file(ctx context.Context, reader manifest.Reader, dir int, e manifest.Entry, path []string) error {
	same := linkedOf(e)
	if first := r.links[same]; e.Link != 0 && first != nil {
		from, err := walkTo(int(r.v.data.Fd()), first.path[:len(first.path)-1])
		if err != nil {
			return err
		}
		defer unix.Close(from)
		first.names = append(first.names, path)
		if err := unix.Linkat(from, first.path[len(first.path)-1], dir, e.Name, 0); err != nil {
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
	f := &restored{path: path, entry: withoutBody(e)}
	if e.Link != 0 {
		r.links[same] = f
	}
	off, total := int64(0), denseOffset(e.Holes, e.Size)
	if r.bytes += total; r.bytes > r.room || r.bytes < 0 {
		return fmt.Errorf("the snapshot has more than the %d bytes that the volume has room for", r.room)
	}
	for ref, err := range reader.Refs(ctx, e.Body) {
		if err != nil {
			return err
		}
		if len(r.pieces) == maxPieces {
			return errors.New("the snapshot has more chunks than a host restores")
		}
		r.pieces = append(r.pieces, piece{int32(len(r.files)), off, ref})
		f.refs = append(f.refs, ref)
		if off += int64(ref.Size); off > total {
			return manifest.ErrCorrupt
		}
	}
	if off != total {
		return manifest.ErrCorrupt
	}
	r.files = append(r.files, f)
	return nil
}

// content fills the files, pack by pack: each pack is read once, by several at a time.
func (r *restore) content(ctx context.Context) error {
	slices.SortFunc(r.pieces, func(a, b piece) int {
		switch {
		case a.ref.Pack != b.ref.Pack:
			return int(max(-1, min(1, a.ref.Pack-b.ref.Pack)))
		case a.ref.Offset != b.ref.Offset:
			return int(int64(a.ref.Offset) - int64(b.ref.Offset))
		}
		return int(a.file - b.file)
	})
	parts := map[int64][]piece{}
	var order []int64
	for from := 0; from < len(r.pieces); {
		n, to := r.pieces[from].ref.Pack, from
		for to < len(r.pieces) && r.pieces[to].ref.Pack == n {
			to++
		}
		parts[n], order = r.pieces[from:to], append(order, n)
		from = to
	}
	if peers := r.v.cfg.Peers; peers != nil {
		order = peers.Order(order)
	}
	r.packs.will(order)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inFlight)
	for _, n := range order {
		g.Go(func() error { return r.pack(ctx, parts[n]) })
	}
	return g.Wait()
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
			if err := writeDense(fd, r.files[x.file].entry.Holes, x.off, b); err != nil {
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
	dir, err := walkTo(int(r.v.data.Fd()), f.path[:len(f.path)-1])
	if err != nil {
		return -1, err
	}
	defer unix.Close(dir)
	return openIn(dir, f.path[len(f.path)-1], unix.O_WRONLY, 0)
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

// attributes sets owners, permissions, attributes and times: of folders after everything in them.
func (r *restore) attributes() error {
	for _, f := range r.files {
		fd, err := r.openFile(f)
		if err != nil {
			return err
		}
		err = apply(fd, f.entry)
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	for _, d := range slices.Backward(r.dirs) {
		fd, err := walkTo(int(r.v.data.Fd()), d.path)
		if err != nil {
			return err
		}
		err = apply(fd, d.entry)
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

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
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), timesOf(e), 0); err != nil {
		return fmt.Errorf("set times: %w", err)
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
		for _, path := range append(f.names, f.path) {
			n := t.at(path)
			if n == nil || !n.isFile() || n.Size != f.entry.Size {
				return nil, errors.New("a restored file has changed before the workload began")
			}
			n.Done, n.Refs, n.Holes = true, f.refs, f.entry.Holes
		}
	}
	return t, nil
}
