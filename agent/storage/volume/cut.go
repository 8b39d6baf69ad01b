package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
)

const (
	maxPasses = 3
	passesIn  = 2 * time.Second
	// PauseMax is the longest time that a cut stops a workload.
	PauseMax = 300 * time.Millisecond
)

// A Freezer stops a node's processes for a moment. Thaw is called after every Freeze, whether it succeeded or not.
type Freezer interface {
	Freeze(ctx context.Context) error
	Thaw() error
}

// A cut is one attempt to see a tree as it was at one moment.
type cut struct {
	data   int // handle of the workload's folder
	dev    uint64
	clones *clones
	base   *tree // of the last snapshot; nil: none
	tick   time.Duration
	now    func() time.Time

	left    int64
	entries int64
	changed int
	made    []uint64         // clones of the present pass
	twins   map[uint64]*node // files with several names, by inode, that this pass has cloned
}

// cutResult describes a cut.
type cutResult struct {
	tree        *tree
	at          time.Time // the moment that the tree shows, or the end of the last pass
	consistency string
	passes      int
	paused      time.Duration // how long the workload was stopped
	freezeErr   error         // why a freeze that was due did not lead to an exact cut
}

// take cuts the whole tree. Each pass clones what has changed since the one before. A pass that finds nothing proves
// that its predecessor's clones are of one moment; else, in the end, the workload is stopped for the last pass.
func (c *cut) take(ctx context.Context, freezer Freezer) (cutResult, error) {
	begun := c.now()
	if err := unix.Syncfs(c.data); err != nil {
		return cutResult{}, fmt.Errorf("write the volume out: %w", err)
	}
	var r cutResult
	for r.passes < maxPasses && (r.passes == 0 || c.now().Sub(begun) < passesIn) {
		t, err := c.pass(ctx, r.tree)
		if err != nil {
			return r, err
		}
		r.passes++
		quiet := r.tree != nil && c.changed == 0
		r.tree, r.at = t, c.now()
		if quiet {
			r.consistency = agentapi.SnapshotExact
			return r, nil
		}
	}
	r.consistency = agentapi.SnapshotPerFile
	if freezer == nil {
		return r, nil
	}
	r.freezeErr = c.frozen(ctx, freezer, &r)
	if r.freezeErr != nil && ctx.Err() != nil {
		return r, ctx.Err()
	}
	return r, nil
}

// frozen makes the last pass while the workload is stopped. If it does not end within PauseMax, the clones of the pass
// before stand.
func (c *cut) frozen(ctx context.Context, freezer Freezer, r *cutResult) error {
	ctx, cancel := context.WithTimeout(ctx, PauseMax)
	defer cancel()
	begun := c.now()
	err := freezer.Freeze(ctx)
	var t *tree
	if err == nil {
		t, err = c.pass(ctx, r.tree)
	}
	thawed := freezer.Thaw()
	r.paused = c.now().Sub(begun)
	if err = errors.Join(err, thawed); err != nil {
		return fmt.Errorf("cut while the workload is stopped: %w", err)
	}
	r.tree, r.at, r.consistency = t, begun.Add(r.paused), agentapi.SnapshotExact
	return nil
}

// part cuts the folder at a path alone; the rest of the tree is that of the last snapshot. The job that requested it
// does not write there now, so that nothing is stopped: a folder that changes all the same is cut file by file.
func (c *cut) part(ctx context.Context, path []string) (cutResult, error) {
	if err := unix.Syncfs(c.data); err != nil {
		return cutResult{}, fmt.Errorf("write the volume out: %w", err)
	}
	r := cutResult{consistency: agentapi.SnapshotPerFile}
	for r.passes < maxPasses {
		t, err := c.graft(ctx, path, r.tree)
		if err != nil {
			return r, err
		}
		r.passes++
		quiet := r.tree != nil && c.changed == 0
		r.tree, r.at = t, c.now()
		if quiet {
			r.consistency = agentapi.SnapshotExact
			break
		}
	}
	return r, nil
}

// pass looks at everything once. What is as prev or the base saw it keeps that clone; all else is cloned.
func (c *cut) pass(ctx context.Context, prev *tree) (*tree, error) {
	c.begin()
	var st unix.Stat_t
	if err := unix.Fstat(c.data, &st); err != nil {
		return nil, fmt.Errorf("look at the volume: %w", err)
	}
	c.dev = uint64(st.Dev)
	n := nodeOf("", &st)
	if err := c.folder(ctx, c.data, n, c.old(prev), c.old(c.base), 0); err != nil {
		return nil, c.undo(err)
	}
	if prev != nil && !n.same(prev.Root, c.tick) {
		c.changed++
	}
	return c.end(&tree{Root: n, LeftOut: c.left, Entries: c.entries}, prev)
}

// graft is pass for the folder at a path.
func (c *cut) graft(ctx context.Context, path []string, prev *tree) (*tree, error) {
	c.begin()
	var st unix.Stat_t
	if err := unix.Fstat(c.data, &st); err != nil {
		return nil, fmt.Errorf("look at the volume: %w", err)
	}
	c.dev = uint64(st.Dev)
	root, base := nodeOf("", &st), c.old(c.base)
	n, fd := root, c.data
	for i, name := range path {
		var kid *node
		if base != nil { // all but the way to the folder stays as it was
			n.Kids = slices.Clone(base.Kids)
		}
		st, err := statIn(fd, name)
		if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			err = unix.ENOTDIR
		}
		var next int
		if err == nil {
			next, err = openDir(fd, name)
		}
		if i > 0 {
			unix.Close(fd)
		}
		if err != nil {
			return nil, c.undo(fmt.Errorf("open the folder to snapshot: %w", err))
		}
		kid, fd = nodeOf(name, &st), next
		n.put(kid)
		n, base = kid, base.kid(name)
	}
	if len(path) > 0 {
		defer unix.Close(fd)
	}
	if err := c.folder(ctx, fd, n, prev.at(path), base, len(path)); err != nil {
		return nil, c.undo(err)
	}
	if prev != nil && !n.same(prev.at(path), c.tick) {
		c.changed++
	}
	t := &tree{Root: root, LeftOut: c.left, Entries: c.entries}
	if c.base != nil {
		t.LeftOut = max(t.LeftOut, c.base.LeftOut)
	}
	return c.end(t, prev)
}

// put adds an entry to a folder, in place of one of that name.
func (n *node) put(kid *node) {
	i, ok := slices.BinarySearchFunc(n.Kids, kid, byName)
	if ok {
		n.Kids[i] = kid
		return
	}
	n.Kids = slices.Insert(n.Kids, i, kid)
}

func byName(a, b *node) int {
	switch {
	case a.Name < b.Name:
		return -1
	case a.Name > b.Name:
		return 1
	}
	return 0
}

func (c *cut) old(t *tree) *node {
	if t == nil {
		return nil
	}
	return t.Root
}

func (c *cut) begin() {
	c.left, c.entries, c.changed, c.made, c.twins = 0, 0, 0, nil, map[uint64]*node{}
}

// undo removes the clones of a pass that failed.
func (c *cut) undo(err error) error {
	for _, n := range c.made {
		err = errors.Join(err, c.clones.drop(n))
	}
	return err
}

// end removes the clones of prev that the new tree and the base do not use.
func (c *cut) end(t, prev *tree) (*tree, error) {
	if prev == nil {
		return t, nil
	}
	used, base := t.clones(), c.base.clones()
	for n := range prev.clones() {
		if !used[n] && !base[n] {
			if err := c.clones.drop(n); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

func nodeOf(name string, st *unix.Stat_t) *node {
	return &node{
		Name: name, Mode: st.Mode &^ (unix.S_ISUID | unix.S_ISGID), UID: st.Uid, GID: st.Gid, Nlink: uint64(st.Nlink),
		Stamp: stampOf(st),
	}
}

// folder reads a folder into n. prev and base are what the last pass and the last snapshot saw of it.
func (c *cut) folder(ctx context.Context, fd int, n, prev, base *node, depth int) error {
	names, err := namesOf(fd)
	if err != nil {
		return err
	}
	if n.Xattrs, err = xattrsOf(fd); err != nil {
		return err
	}
	slices.Sort(names)
	n.Kids = make([]*node, 0, len(names))
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if c.entries >= maxEntries || depth >= maxDepth {
			c.left++
			continue
		}
		kid, err := c.entry(ctx, fd, name, prev.kid(name), base.kid(name), depth)
		if err != nil {
			return err
		}
		if kid != nil {
			n.Kids = append(n.Kids, kid)
			c.entries++
		}
	}
	if prev != nil && len(prev.Kids) != len(n.Kids) {
		c.changed++
	}
	return nil
}

// entry looks at one name in a folder. It returns nil for what is left out, or was removed meanwhile.
func (c *cut) entry(ctx context.Context, dir int, name string, prev, base *node, depth int) (*node, error) {
	st, err := statIn(dir, name)
	if passed(err) {
		c.changed++
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n := nodeOf(name, &st)
	if uint64(st.Dev) != c.dev {
		c.left++
		return nil, nil
	}
	same := n.same(prev, c.tick)
	switch {
	case n.isDir():
		fd, err := openDir(dir, name)
		if err != nil {
			return c.missed(err)
		}
		defer unix.Close(fd)
		if err := c.folder(ctx, fd, n, prev, base, depth+1); err != nil {
			return nil, err
		}
	case n.isLink():
		n.Target, err = linkIn(dir, name)
		same = same || prev != nil && prev.Target == n.Target && prev.Stamp == n.Stamp
		if err != nil {
			return c.missed(err)
		}
	case n.isFile():
		if err := c.file(dir, n, prev, base); err != nil {
			return c.missed(err)
		}
	default:
		c.left++
		return nil, nil
	}
	if !same {
		c.changed++
	}
	return n, nil
}

// missed judges an entry that could not be read: one that was removed or replaced meanwhile is looked at again in the
// next pass.
func (c *cut) missed(err error) (*node, error) {
	if passed(err) || errors.Is(err, errReplaced) {
		c.changed++
		return nil, nil
	}
	return nil, err
}

func linkIn(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if errors.Is(err, unix.EINVAL) { // no symbolic link any more
		return "", errReplaced
	}
	if err != nil {
		return "", fmt.Errorf("read a link: %w", err)
	}
	return string(buf[:n]), nil
}

var errReplaced = errors.New("the entry was replaced while it was looked at")

// file gives a file's node the content of the last look if nothing has changed since, else a new clone.
func (c *cut) file(dir int, n, prev, base *node) error {
	for _, old := range []*node{prev, base} {
		if n.same(old, c.tick) && (old.Clone != 0 || old.Done) {
			n.keep(old)
			return nil
		}
	}
	if twin := c.twins[n.Ino]; n.Nlink > 1 && n.same(twin, c.tick) { // another name of the same file
		n.keep(twin)
		return nil
	}
	fd, err := openIn(dir, n.Name, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at a file: %w", err)
	}
	if st.Ino != n.Ino || st.Mode&unix.S_IFMT != unix.S_IFREG || uint64(st.Dev) != c.dev {
		return errReplaced
	}
	name, target := n.Name, n.Target
	*n = *nodeOf(name, &st)
	n.Target, n.ClonedNS = target, c.now().UnixNano()
	if n.Xattrs, err = xattrsOf(fd); err != nil {
		return err
	}
	if n.Size == 0 {
		n.Done = true
		return nil
	}
	if n.Clone, err = c.clones.take(fd); err != nil {
		return err
	}
	c.made = append(c.made, n.Clone)
	if n.Nlink > 1 {
		c.twins[n.Ino] = n
	}
	return nil
}

// keep gives a node the content that an earlier look found.
func (n *node) keep(old *node) {
	n.Clone, n.ClonedNS, n.Xattrs = old.Clone, old.ClonedNS, old.Xattrs
	n.Done, n.Refs, n.Holes = old.Done, old.Refs, old.Holes
}
