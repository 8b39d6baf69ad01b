package volume

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/data/manifest"
)

// Limits on what one volume may hold. What is beyond them is left out of snapshots and counted.
const (
	maxDepth   = 256
	maxEntries = 2 << 20
)

// A Stamp shows whether a file has changed. A file that was written and whose times were set back has another ctime.
type Stamp struct {
	Size, MtimeNS, CtimeNS int64
	Ino                    uint64
}

func stampOf(st *unix.Stat_t) Stamp {
	return Stamp{Size: st.Size, MtimeNS: st.Mtim.Nano(), CtimeNS: st.Ctim.Nano(), Ino: st.Ino}
}

// A node is one entry of a tree as a cut saw it.
type node struct {
	Name     string
	Mode     uint32 // type and permissions, without set-uid and set-gid
	UID, GID uint32
	Nlink    uint64
	Stamp
	Target string            // of a symbolic link
	Xattrs map[string]string // user.*
	Kids   []*node           // of a folder, sorted by name

	// Of a regular file: the clone that holds its content at the cut, and the time just before it was made by the clock
	// that ctime follows. 0: the file is empty, or its clone was dropped to make room.
	Clone    uint64
	ClonedNS int64
	// Done: Refs and Holes describe the content of this node. Refs are the chunks themselves, never lists of them.
	Done  bool
	Refs  []manifest.Ref
	Holes []manifest.Extent
}

func (n *node) isDir() bool  { return n.Mode&unix.S_IFMT == unix.S_IFDIR }
func (n *node) isFile() bool { return n.Mode&unix.S_IFMT == unix.S_IFREG }
func (n *node) isLink() bool { return n.Mode&unix.S_IFMT == unix.S_IFLNK }

// A tree is what a cut saw of a volume.
type tree struct {
	Root    *node
	LeftOut int64 // devices, sockets, FIFOs, other file systems, what is beyond the limits
	Entries int64
}

// kid returns an entry of a folder, or nil.
func (n *node) kid(name string) *node {
	if n == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(n.Kids, name, func(k *node, name string) int { return cmp.Compare(k.Name, name) })
	if !ok {
		return nil
	}
	return n.Kids[i]
}

// at returns the entry at a path, or nil.
func (t *tree) at(parts []string) *node {
	if t == nil {
		return nil
	}
	n := t.Root
	for _, p := range parts {
		n = n.kid(p)
	}
	return n
}

// files calls f with each regular file.
func (n *node) files(f func(*node)) {
	if n == nil {
		return
	}
	if n.isFile() {
		f(n)
	}
	for _, k := range n.Kids {
		k.files(f)
	}
}

// clones returns the clones that a tree uses.
func (t *tree) clones() map[uint64]bool {
	used := map[uint64]bool{}
	if t != nil {
		t.Root.files(func(n *node) {
			if n.Clone != 0 {
				used[n.Clone] = true
			}
		})
	}
	return used
}

// ticks is how far ctime may be behind the moment of a write: before Linux 6.13 it advances in steps of a timer tick,
// so that a file that was written after its clone may have the ctime that it had before. See kernelTicks.
const ticks = 20 * time.Millisecond

// settled reports whether a later write to the file must have changed its stamp.
func (n *node) settled(tick time.Duration) bool {
	return tick == 0 || n.ClonedNS-n.CtimeNS > int64(tick)
}

// same reports whether nothing of an entry has changed between two looks, its content and the entries of a folder
// included.
func (n *node) same(old *node, tick time.Duration) bool {
	return old != nil && n.Mode == old.Mode && n.UID == old.UID && n.GID == old.GID && n.Stamp == old.Stamp &&
		n.Nlink == old.Nlink && n.Target == old.Target && (!n.isFile() || old.settled(tick))
}
