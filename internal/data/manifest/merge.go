package manifest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
)

// A Shard is what one rank has changed: how To differs from From.
type Shard struct {
	Rank int
	From Ref // root of the tree that the rank began with; the zero Ref: an empty one
	To   Ref // root of its tree now
}

// A Merger makes one tree of what several ranks have changed, each in a copy of its own. It reads directories only, and
// of these only those in which something has changed; it never reads the content of files.
type Merger struct {
	Reader Reader
	Writer Writer
	Limit  int64 // bytes of directories that it may read and keep; 0 is MaxMergeBytes
}

// Merged is the tree that a merge has made.
type Merged struct {
	Root  Ref
	Found Root // what Root refers to
}

// A ConflictError is a path that two ranks have changed in different ways.
type ConflictError struct {
	Path  string
	Ranks []int // that have changed it now
	// Before: it was changed differently in a snapshot that a rank of Ranks does not know.
	Before bool
}

func (e *ConflictError) Error() string {
	who := make([]string, len(e.Ranks))
	for i, r := range e.Ranks {
		who[i] = fmt.Sprint(r)
	}
	path := "/" + e.Path
	if e.Before {
		return fmt.Sprintf("%s was changed by rank %s, and before that by another rank", path, strings.Join(who, " and "))
	}
	return fmt.Sprintf("%s was changed differently by ranks %s", path, strings.Join(who, " and "))
}

// ErrTooBig is the error of a merge that would have to read, or keep in memory, more than MaxMergeBytes.
var ErrTooBig = errors.New("too many directories have changed for a merge")

// MaxMergeBytes limits the directories that one merge reads and the memory that it takes for them, unless the caller
// sets another limit.
const MaxMergeBytes = 256 << 20

// dirCost is what a directory counts in addition to its bytes: it has to be fetched.
const dirCost = 1 << 10

// Merge applies what each shard has changed to the tree of head, which is the last commit of all; the zero Ref is an
// empty tree. What one rank has changed is as it left it. What several have changed must be the same in all of them,
// except that directories are merged, and that the latest time of modification counts. The error is a *ConflictError if
// it is not.
func (m Merger) Merge(ctx context.Context, head Ref, shards []Shard) (Merged, error) {
	g := &merge{Merger: m, ctx: ctx, left: m.Limit, links: map[linkSide]bool{}}
	if g.left == 0 {
		g.left = MaxMergeBytes
	}
	root, err := g.root(head)
	if err != nil {
		return Merged{}, err
	}
	out := root
	if out == nil {
		out = &Root{}
	}
	out.LeftOut = 0
	var sides []side
	for _, s := range shards {
		from, err := g.root(s.From)
		if err != nil {
			return Merged{}, err
		}
		to, err := g.root(s.To)
		if err != nil {
			return Merged{}, err
		}
		if to == nil {
			return Merged{}, ErrCorrupt
		}
		out.LeftOut += to.LeftOut
		sides = append(sides, side{rank: s.Rank, from: dirOf(from), to: &to.Dir})
	}
	dir, err := g.entry("", 0, dirOf(root), sides)
	if err != nil {
		return Merged{}, err
	}
	if dir == nil || dir.Kind != Dir {
		return Merged{}, ErrCorrupt
	}
	found := Root{Dir: *dir, Files: max(0, out.Files+g.files), Dirs: max(0, out.Dirs+g.dirs),
		LogicalBytes: max(0, out.LogicalBytes+g.bytes), LeftOut: out.LeftOut}
	ref, err := m.Writer.Root(found)
	return Merged{Root: ref, Found: found}, err
}

// side is one rank's view of a path; nil: nothing is there.
type side struct {
	rank     int
	from, to *Entry
}

type linkSide struct {
	link uint64
	sign int64
}

// merge is one merge.
type merge struct {
	Merger
	ctx  context.Context
	left int64 // bytes that it may still read

	// What the merged tree has more than head. A file with several names is counted once for each merge.
	files, dirs, bytes int64
	links              map[linkSide]bool
}

func (g *merge) root(ref Ref) (*Root, error) {
	if ref == (Ref{}) {
		return nil, nil
	}
	r, err := g.Reader.Root(g.ctx, ref)
	return &r, err
}

func dirOf(r *Root) *Entry {
	if r == nil {
		return nil
	}
	return &r.Dir
}

// entry merges one path and returns what is there, or nil.
func (g *merge) entry(path string, depth int, head *Entry, sides []side) (*Entry, error) {
	var changed []side
	for _, s := range sides {
		if !equal(s.from, s.to) {
			changed = append(changed, s)
		}
	}
	switch {
	case len(changed) == 0:
		return head, nil
	case depth > MaxDepth:
		return nil, ErrCorrupt
	case len(changed) == 1 && equal(head, changed[0].from):
		return changed[0].to, g.count(head, changed[0].to, depth)
	case mergeable(head, changed):
		return g.dir(path, depth, head, changed)
	}
	return g.leaf(path, depth, head, changed)
}

// mergeable reports whether all that is left of a path are directories.
func mergeable(head *Entry, changed []side) bool {
	if head != nil && head.Kind != Dir {
		return false
	}
	for _, s := range changed {
		if s.to != nil && s.to.Kind != Dir || s.to == nil && !isDir(s.from) {
			return false
		}
	}
	return true
}

func isDir(e *Entry) bool { return e != nil && e.Kind == Dir }

// leaf merges a path that is not a directory everywhere: all that have changed it must agree, and must have known what
// is there.
func (g *merge) leaf(path string, depth int, head *Entry, changed []side) (*Entry, error) {
	real, err := g.real(changed)
	if err != nil {
		return nil, err
	}
	if len(real) > 0 {
		changed = real
	} else if alike, err := g.alike(head, changed[0].to); err != nil || !alike {
		return head, err // another one has changed it before
	}
	out := changed[0].to
	for _, s := range changed {
		alike, err := g.alike(s.to, changed[0].to)
		if err != nil {
			return nil, err
		}
		if !alike {
			return nil, conflict(path, changed, false)
		}
		if s.to != nil && s.to.MTime > out.MTime {
			out = s.to
		}
	}
	for _, s := range changed {
		known, err := g.alike(head, s.from)
		if err == nil && !known {
			known, err = g.alike(head, s.to)
		}
		if err != nil {
			return nil, err
		}
		if !known {
			return nil, conflict(path, []side{s}, true)
		}
	}
	return out, g.count(head, out, depth)
}

// real returns those sides that have another content or other attributes than before: the others have stored the same
// once more, or have set its time.
func (g *merge) real(changed []side) (out []side, err error) {
	for _, s := range changed {
		alike, err := g.alike(s.from, s.to)
		if err != nil {
			return nil, err
		}
		if !alike {
			out = append(out, s)
		}
	}
	return out, nil
}

func conflict(path string, sides []side, before bool) error {
	e := &ConflictError{Path: path, Before: before}
	for _, s := range sides {
		e.Ranks = append(e.Ranks, s.rank)
	}
	return e
}

// dir merges a directory. One that a rank has removed loses what that rank had in it, and goes when nothing is left.
func (g *merge) dir(path string, depth int, head *Entry, changed []side) (*Entry, error) {
	attrs, err := attributes(path, head, changed)
	if err != nil {
		return nil, err
	}
	all := lists{g: g}
	have, err := all.of(head)
	if err != nil {
		return nil, err
	}
	from, to := make([]map[string]*Entry, len(changed)), make([]map[string]*Entry, len(changed))
	names := maps.Clone(have)
	for i, s := range changed {
		if from[i], err = all.of(s.from); err != nil {
			return nil, err
		}
		if to[i], err = all.of(s.to); err != nil {
			return nil, err
		}
		maps.Copy(names, to[i])
		maps.Copy(names, from[i])
	}
	if head == nil && depth > 0 {
		g.dirs++
	}
	var entries []Entry
	changes := head == nil
	for _, name := range slices.Sorted(maps.Keys(names)) {
		sides := make([]side, len(changed))
		for i, s := range changed {
			sides[i] = side{rank: s.rank, from: from[i][name], to: to[i][name]}
		}
		e, err := g.entry(strings.TrimPrefix(path+"/"+name, "/"), depth+1, have[name], sides)
		if err != nil {
			return nil, err
		}
		changes = changes || !equal(e, have[name])
		if e != nil {
			entries = append(entries, *e)
		}
	}
	if len(entries) == 0 && depth > 0 && slices.ContainsFunc(changed, func(s side) bool { return s.to == nil }) &&
		!slices.ContainsFunc(changed, func(s side) bool { return s.to != nil }) {
		g.dirs--
		return nil, nil
	}
	if !changes {
		attrs.Size, attrs.Body = head.Size, head.Body
		return attrs, nil
	}
	return attrs, g.Writer.Dir(attrs, entries)
}

// attributes returns a merged directory without content.
func attributes(path string, head *Entry, changed []side) (*Entry, error) {
	var out *Entry
	mtime := int64(0)
	if head != nil {
		out, mtime = head, head.MTime
	}
	var by []side
	for _, s := range changed {
		if s.to == nil {
			continue
		}
		mtime = max(mtime, s.to.MTime)
		if isDir(s.from) && sameAttributes(s.from, s.to) && out != nil {
			continue
		}
		switch {
		case len(by) > 0 && !sameAttributes(out, s.to):
			return nil, conflict(path, append(by, s), false)
		case len(by) == 0 && head != nil && !(isDir(s.from) && sameAttributes(head, s.from)) && !sameAttributes(head, s.to):
			return nil, conflict(path, []side{s}, true)
		}
		out, by = s.to, append(by, s)
	}
	if out == nil { // removed by all, and in no commit
		out = &Entry{Kind: Dir, Name: path[strings.LastIndexByte(path, '/')+1:]}
	}
	e := *out
	e.MTime, e.Size, e.Body = mtime, 0, Content{}
	return &e, nil
}

func sameAttributes(a, b *Entry) bool {
	return a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID && slices.Equal(a.XAttrs, b.XAttrs)
}

// list returns the entries of a directory by name; of nothing else, none. The merge keeps them in memory, and counts
// what they take.
func (g *merge) list(e *Entry) (map[string]*Entry, error) {
	out := map[string]*Entry{}
	err := g.each(e, func(k *Entry) error {
		out[k.Name] = k
		return g.keep(k)
	})
	return out, err
}

// each calls f with the entries of a directory; of nothing else, with none.
func (g *merge) each(e *Entry, f func(*Entry) error) error {
	if !isDir(e) {
		return nil
	}
	if g.left -= e.Size + dirCost; g.left < 0 {
		return ErrTooBig
	}
	for k, err := range g.Reader.Entries(g.ctx, *e) {
		if err == nil {
			err = f(&k)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keep counts the memory of an entry, beyond the bytes of its encoding.
func (g *merge) keep(e *Entry) error {
	const entry, hole, ref = 256, 16, 24
	if g.left -= entry + hole*int64(len(e.Holes)) + ref*int64(len(e.Body.Refs)); g.left < 0 {
		return ErrTooBig
	}
	return nil
}

// lists lists directories, each content of one once.
type lists struct {
	g    *merge
	have []listed
}

type listed struct {
	e       *Entry
	entries map[string]*Entry
}

func (l *lists) of(e *Entry) (map[string]*Entry, error) {
	for _, x := range l.have {
		if isDir(e) && e.Size == x.e.Size && e.Body.Lists == x.e.Body.Lists && slices.Equal(e.Body.Refs, x.e.Body.Refs) {
			return x.entries, nil
		}
	}
	entries, err := l.g.list(e)
	if err == nil && isDir(e) {
		l.have = append(l.have, listed{e, entries})
	}
	return entries, err
}

// equal reports whether two entries are the same in everything, the places of their chunks included.
func equal(a, b *Entry) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.MTime == b.MTime && sameAttributes(a, b) && a.Target == b.Target && a.Link == b.Link &&
		a.Size == b.Size && slices.Equal(a.Holes, b.Holes) && a.Body.Lists == b.Body.Lists &&
		slices.Equal(a.Body.Refs, b.Body.Refs)
}

// alike reports whether two entries have the same content and attributes, whatever their times and the places of their
// chunks.
func (g *merge) alike(a, b *Entry) (bool, error) {
	if a == nil || b == nil {
		return a == b, nil
	}
	if a.Kind != b.Kind || !sameAttributes(a, b) || a.Target != b.Target || a.Link != b.Link || a.Size != b.Size ||
		!slices.Equal(a.Holes, b.Holes) {
		return false, nil
	}
	sameIDs := func(x, y Ref) bool { return x.ID == y.ID && x.Size == y.Size }
	if a.Body.Lists == b.Body.Lists && slices.EqualFunc(a.Body.Refs, b.Body.Refs, sameIDs) {
		return true, nil
	}
	if a.Body.Lists == 0 && b.Body.Lists == 0 || a.Kind == Dir {
		return false, nil
	}
	next, stop := iter.Pull2(g.Reader.Refs(g.ctx, *b))
	defer stop()
	for x, err := range g.Reader.Refs(g.ctx, *a) {
		if err != nil {
			return false, err
		}
		if g.left -= 2 * minRef; g.left < 0 {
			return false, ErrTooBig
		}
		if y, err, ok := next(); err != nil || !ok || !sameIDs(x, y) {
			return false, err
		}
	}
	_, err, more := next()
	return !more, err
}

// count counts what b has more than a, which it replaces.
func (g *merge) count(a, b *Entry, depth int) error {
	switch {
	case equal(a, b):
		return nil
	case depth > MaxDepth:
		return ErrCorrupt
	case !isDir(a) || !isDir(b):
		if err := g.add(a, -1, depth); err != nil {
			return err
		}
		return g.add(b, 1, depth)
	}
	old, err := g.list(a)
	if err != nil {
		return err
	}
	now, err := g.list(b)
	if err != nil {
		return err
	}
	for name, e := range old {
		if err := g.count(e, now[name], depth+1); err != nil {
			return err
		}
	}
	for name, e := range now {
		if old[name] == nil {
			if err := g.add(e, 1, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// add counts everything of an entry.
func (g *merge) add(e *Entry, sign int64, depth int) error {
	switch {
	case e == nil:
		return nil
	case depth > MaxDepth:
		return ErrCorrupt
	case e.Kind == Symlink:
		g.files += sign
		return nil
	case e.Kind == File:
		g.files += sign
		if at := (linkSide{e.Link, sign}); e.Link == 0 || !g.links[at] {
			g.links[at] = true
			g.bytes += sign * dense(e)
		}
		return nil
	}
	if depth > 0 {
		g.dirs += sign
	}
	var below []*Entry
	err := g.each(e, func(k *Entry) error {
		if k.Kind != Dir {
			return g.add(k, sign, depth+1)
		}
		below = append(below, k)
		return g.keep(k)
	})
	for _, k := range below {
		if err == nil {
			err = g.add(k, sign, depth+1)
		}
	}
	return err
}

// dense returns the bytes of a file without its holes.
func dense(e *Entry) int64 {
	n := e.Size
	for _, h := range e.Holes {
		n -= h.Length
	}
	return n
}
