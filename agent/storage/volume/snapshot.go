package volume

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/manifest"
)

// Request is a snapshot to take.
type Request struct {
	ID    string // snp_…, chosen before, so that a repetition is the same snapshot
	Cause string
	Label string
	// Dir limits the cut to a folder of the volume, a relative path; the rest is that of the last snapshot. The job that
	// requests it does not write there now: it is not stopped.
	Dir     string
	Freezer Freezer // nil: the workload is never stopped
	Cut     func()  // called once after the cut, from which on the workload may change everything; may be nil
	// AllRanks: it is committed together with those of all other ranks, or not at all. For agentapi.MountRanks.
	AllRanks bool
	// Wait is called while other ranks are waited for. If it returns false the snapshot is given up. nil: wait.
	Wait func(missing []int) bool
}

// Result is a committed snapshot.
type Result struct {
	ID          string
	As          string // id of the commit: another one if it is that of all ranks
	Seq         int64
	CommittedMS int64
	Consistency string
	Paused      time.Duration
	Sent        int64 // bytes of new packs
}

// reached is called at each step, by tests that kill the process there.
var reached = func(string) {}

// ErrNoRoom: the workload has filled the volume, and the clones that the snapshot needs had to go.
var ErrNoRoom = errors.New("the volume is too full for a snapshot")

// missTries is how often a snapshot is sent again of which the server misses packs.
const missTries = 3

// Snapshot takes and commits a snapshot, after one that was begun before. It can be called again with the same request
// after any failure or kill: the snapshot goes on where it was.
func (v *Volume) Snapshot(ctx context.Context, q Request) (Result, error) {
	v.turn.Lock()
	defer v.turn.Unlock()
	if !v.Restored() {
		return Result{}, errors.New("the volume is not restored yet")
	}
	if v.open != nil {
		r, err := v.send(ctx, q.Wait)
		if err != nil && !v.dropped() {
			return r, err
		}
		if r.ID == q.ID {
			return r, err
		}
	}
	if v.state.Snapshot == q.ID {
		return Result{ID: q.ID, As: v.state.As, Seq: v.state.Seq}, nil
	}
	cut, err := v.cut(ctx, q)
	if err != nil {
		return Result{}, err
	}
	if q.Cut != nil {
		q.Cut()
	}
	r, err := v.send(ctx, q.Wait)
	r.Paused = cut.paused
	return r, err
}

// dropped reports whether the snapshot under way was given up.
func (v *Volume) dropped() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.open == nil
}

// cut makes the cut of a snapshot and its record.
func (v *Volume) cut(ctx context.Context, q Request) (cutResult, error) {
	v.MakeRoom()
	c := cut{data: int(v.data.Fd()), clones: v.clones, base: v.state.Tree, tick: v.tick, now: time.Now}
	var r cutResult
	var err error
	if q.Dir == "" {
		r, err = c.take(ctx, q.Freezer)
	} else {
		r, err = c.part(ctx, strings.Split(q.Dir, "/"))
	}
	if err != nil {
		return r, errors.Join(fmt.Errorf("cut the volume: %w", err), v.clones.dropExcept(v.state.Tree))
	}
	if r.freezeErr != nil {
		v.cfg.Log.Warn("the workload could not be stopped for the cut: the snapshot is consistent by file", "volume",
			v.cfg.Mount.Volume, "err", r.freezeErr)
	}
	reached("cut")
	open := &openFile{ID: q.ID, Cause: q.Cause, Label: q.Label, AllRanks: q.AllRanks,
		Consistency: r.consistency, BaseSeq: v.state.Seq,
		CutBoot: v.cfg.BootMS() - time.Since(r.at).Milliseconds(), Tree: r.tree}
	if err := errors.Join(v.forget(sentName), v.save(openName, open)); err != nil {
		return r, errors.Join(err, v.clones.dropExcept(v.state.Tree))
	}
	v.mu.Lock()
	v.open = open
	v.mu.Unlock()
	reached("recorded")
	return r, nil
}

// send stores what the snapshot under way needs, and commits it.
func (v *Volume) send(ctx context.Context, wait func([]int) bool) (Result, error) {
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	v.mu.Lock()
	v.cancel = cancel
	v.mu.Unlock()
	r, err := v.sendOpen(ctx, wait)
	if err != nil && errors.Is(context.Cause(ctx), ErrNoRoom) {
		err = ErrNoRoom
	}
	// It is not under way any more if it was committed, and only its records could not be removed.
	if err != nil && v.ranks() && v.open != nil && v.open.Sealed &&
		(errors.Is(err, ErrNoRoom) || errors.Is(err, ErrAlone)) {
		r, err = v.withdraw(outer, err)
	}
	v.mu.Lock()
	v.sender, v.cancel = nil, nil
	v.mu.Unlock()
	if err != nil && (errors.Is(err, ErrNoRoom) || errors.Is(err, ErrAlone) || final(err)) {
		err = errors.Join(err, v.drop())
	}
	return r, err
}

// drop gives the snapshot under way up.
func (v *Volume) drop() error {
	v.mu.Lock()
	v.open = nil
	v.mu.Unlock()
	return errors.Join(v.forgetOpen(), v.clones.dropExcept(v.state.Tree))
}

func (v *Volume) sendOpen(ctx context.Context, wait func([]int) bool) (Result, error) {
	known := manifest.NewIndex()
	v.state.Tree.refs(known.Add)
	for _, r := range v.state.Meta {
		known.Add(r)
	}
	if err := v.sent(known.Add); err != nil {
		return Result{}, err
	}
	for try := 1; ; try++ {
		sent := int64(0)
		if !v.open.Sealed {
			var err error
			if sent, err = v.store(ctx, known); err != nil {
				return Result{}, err
			}
		}
		reached("stored")
		done, err := v.commit(ctx, wait)
		var refused *agentapi.VolumeError
		if errors.As(err, &refused) && refused.Code == agentapi.VolumeMissing && try < missTries {
			if err := v.again(known, refused.Packs); err != nil {
				return Result{}, err
			}
			continue
		}
		if err != nil {
			return Result{}, err
		}
		reached("committed")
		done.Sent = sent
		return done, v.committed(done)
	}
}

// committed makes the snapshot under way the base of the next one.
func (v *Volume) committed(r Result) error {
	state := v.open.state(r.Seq, r.As)
	if err := v.save(stateName, state); err != nil {
		return err
	}
	reached("noted")
	v.mu.Lock()
	v.state, v.open = state, nil
	v.mu.Unlock()
	return errors.Join(v.forgetOpen(), v.clones.dropExcept(state.Tree))
}

// again prepares to store the chunks of packs once more that the store does not have.
func (v *Volume) again(known *manifest.Index, packs []int64) error {
	missing := map[int64]bool{}
	for _, n := range packs {
		missing[n] = true
	}
	known.Forget(missing)
	for _, t := range []*tree{v.open.Tree, v.state.Tree} { // of the base, too: it is compared with
		if t == nil {
			continue
		}
		t.Root.files(func(n *node) {
			if slices.ContainsFunc(n.Refs, func(r manifest.Ref) bool { return missing[r.Pack] }) {
				n.Done, n.Refs = false, nil
			}
		})
	}
	v.open.Sealed = false
	v.cfg.Log.Warn("the store lacks packs of a snapshot: their chunks are sent again", "volume", v.cfg.Mount.Volume,
		"packs", slices.Sorted(maps.Keys(missing)))
	return nil
}

// store stores everything of the snapshot under way. Then it is sealed.
func (v *Volume) store(ctx context.Context, known *manifest.Index) (int64, error) {
	open := v.open
	stored := func(refs []manifest.Ref) error {
		reached("pack")
		return v.noteSent(refs)
	}
	s := (&sender{remote: &v.remote, keys: v.keys, snapshot: open.ID, known: known, stored: stored}).start(ctx)
	v.mu.Lock()
	v.sender = s
	v.mu.Unlock()
	w := encoder{links: map[uint64]uint64{}, used: map[uint64]bool{}}
	w.Put = func(b []byte) (manifest.Ref, error) {
		r, err := s.put(manifestPacks, b)
		w.meta = append(w.meta, r)
		return r, err
	}
	err := v.splitAll(s)
	var root manifest.Ref
	if err == nil {
		root, err = w.tree(open.Tree)
	}
	if err != nil {
		return 0, s.abandon(err)
	}
	if err := s.finish(); err != nil {
		return 0, err
	}
	packs := manifest.NewPackSet()
	open.Tree.refs(func(r manifest.Ref) { packs.Add(r.Pack) })
	for _, r := range w.meta {
		packs.Add(r.Pack)
	}
	open.Sealed, open.Root, open.Meta, open.Packs, open.Files, open.Bytes = true, root, w.meta, packs.Encode(), w.count,
		w.bytes
	if len(open.Packs) > agentapi.MaxSnapshotSet {
		return 0, &agentapi.VolumeError{Code: agentapi.VolumeMalformed, Message: "the volume has too many packs"}
	}
	return s.sent, v.save(openName, open)
}

// splitAll gives every file of the snapshot under way its references.
func (v *Volume) splitAll(s *sender) error {
	byInode := map[uint64]*node{}
	if v.state.Tree != nil {
		v.state.Tree.Root.files(func(n *node) { byInode[n.Ino] = n })
	}
	done := map[uint64]*node{} // by clone: a file with several names is read once
	put := func(b []byte) (manifest.Ref, error) { return s.put(dataPacks, b) }
	var err error
	v.open.Tree.Root.files(func(n *node) {
		if err != nil || n.Done {
			return
		}
		if twin := done[n.Clone]; twin != nil {
			n.Done, n.Refs, n.Holes = true, twin.Refs, twin.Holes
			return
		}
		err = split(n, byInode[n.Ino], v.clones.open, put)
		switch {
		case err == nil:
			done[n.Clone] = n
		case errors.Is(err, fs.ErrNotExist): // its clone had to go
			err = ErrNoRoom
		}
	})
	return err
}

// refs calls f with every reference of a tree to data.
func (t *tree) refs(f func(manifest.Ref)) {
	if t == nil {
		return
	}
	t.Root.files(func(n *node) {
		for _, r := range n.Refs {
			f(r)
		}
	})
}

// An encoder writes the manifest of a tree.
type encoder struct {
	manifest.Writer
	meta         []manifest.Ref
	links        map[uint64]uint64 // of an inode with several names, its number in the manifest
	used         map[uint64]bool
	count, bytes int64
	dirs         int64
}

func (w *encoder) tree(t *tree) (manifest.Ref, error) {
	root, err := w.entry(t.Root, "")
	if err != nil {
		return manifest.Ref{}, err
	}
	return w.Root(manifest.Root{Dir: root, Files: w.count, Dirs: w.dirs - 1, LogicalBytes: w.bytes, LeftOut: t.LeftOut})
}

func (w *encoder) entry(n *node, path string) (manifest.Entry, error) {
	e := manifest.Entry{Name: n.Name, Mode: n.Mode & 0o1777, UID: n.UID, GID: n.GID, MTime: n.MtimeNS}
	for _, name := range slices.Sorted(maps.Keys(n.Xattrs)) {
		e.XAttrs = append(e.XAttrs, manifest.XAttr{Name: name, Value: n.Xattrs[name]})
	}
	var err error
	switch {
	case n.isDir():
		e.Kind = manifest.Dir
		w.dirs++
		entries := make([]manifest.Entry, 0, len(n.Kids))
		for _, k := range n.Kids {
			kid, err := w.entry(k, path+"/"+k.Name)
			if err != nil {
				return e, err
			}
			entries = append(entries, kid)
		}
		err = w.Dir(&e, entries)
	case n.isLink():
		e.Kind, e.Target = manifest.Symlink, n.Target
		w.count++
	default:
		e.Kind, e.Size, e.Holes = manifest.File, n.Size, n.Holes
		w.count++
		if w.link(n, &e, path) {
			w.bytes += denseOffset(n.Holes, n.Size)
		}
		e.Body, err = w.Content(n.Refs)
	}
	return e, err
}

// link numbers a file with several names, by the first of them: the trees of several ranks are merged, and a number
// must not mean one file here and another one there. It reports whether this name is the first.
func (w *encoder) link(n *node, e *manifest.Entry, path string) bool {
	if n.Nlink < 2 {
		return true
	}
	number, seen := w.links[n.Ino]
	if !seen {
		h := fnv.New64a()
		_, _ = h.Write([]byte(path))
		for number = max(1, h.Sum64()); w.used[number]; number = max(1, number+1) {
		}
		w.used[number] = true
		w.links[n.Ino] = number
	}
	e.Link = number
	return !seen
}

// roomFloor is the part of a volume's file system, in percent, below which clones are dropped.
const roomFloor = 5

// MakeRoom drops clones if the volume is nearly full: first those of the last snapshot, so that the next one reads
// more; then those of the snapshot under way, which is given up. Call it often.
func (v *Volume) MakeRoom() {
	if !v.full() {
		return
	}
	v.mu.Lock()
	base, open, cancel := v.state.Tree.clones(), map[uint64]bool{}, v.cancel
	if v.open != nil {
		open = v.open.Tree.clones()
	}
	v.mu.Unlock()
	for n := range base {
		if !open[n] {
			_ = v.clones.drop(n) // the next call tries again
		}
	}
	for range 20 { // XFS frees the blocks of removed files a moment later
		if len(open) == 0 || !v.full() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	v.cfg.Log.Warn("a volume is full: the snapshot under way is given up", "volume", v.cfg.Mount.Volume)
	if cancel != nil {
		cancel(ErrNoRoom)
	}
	for n := range open {
		_ = v.clones.drop(n)
	}
}

func (v *Volume) full() bool {
	var st unix.Statfs_t
	if unix.Fstatfs(int(v.data.Fd()), &st) != nil {
		return false
	}
	return st.Bavail < st.Blocks/100*roomFloor
}
