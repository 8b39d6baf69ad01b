package volume

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

// split gives a node its references: put stores each chunk and returns where it is. old is the node of the last
// snapshot that may be the same file, or nil: what has not changed since is not read again.
func split(n, old *node, open func(uint64) (*os.File, error), put func([]byte) (manifest.Ref, error)) error {
	if n.Size == 0 {
		n.Done = true
		return nil
	}
	f, err := open(n.Clone)
	if err != nil {
		return fmt.Errorf("open a clone: %w", err)
	}
	defer f.Close()
	if n.Holes, err = holesOf(f, n.Size); err != nil {
		return err
	}
	s := splitter{data: &dense{f: f, holes: n.Holes}, total: denseOffset(n.Holes, n.Size), put: put}
	if old != nil && old.Done && old.Clone != 0 && slices.Equal(n.Holes, old.Holes) && len(old.Refs) > 0 {
		if err := s.since(f, n, old, open); err != nil {
			return err
		}
	} else {
		s.ranges = []manifest.Extent{{Offset: 0, Length: s.total}}
	}
	n.Refs, err = s.run()
	n.Done = err == nil
	return err
}

// A splitter makes the references of a file out of those that it had and of what has changed. Offsets are those of the
// content without its holes.
type splitter struct {
	data   *dense
	total  int64
	old    []manifest.Ref
	ranges []manifest.Extent // that may have changed, in their order
	put    func([]byte) (manifest.Ref, error)

	out []manifest.Ref
	pos int64
	i   int   // old[i] is the first reference that is not before at
	at  int64 // where old[i] begins
}

// since looks up what has changed since an older clone. Without an answer everything has.
func (s *splitter) since(f *os.File, n, old *node, open func(uint64) (*os.File, error)) error {
	s.ranges = []manifest.Extent{{Offset: 0, Length: s.total}}
	before, err := open(old.Clone)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open a clone: %w", err)
	}
	defer before.Close()
	ranges, ok, err := changedRanges(f, before, n.Size, old.Size)
	if err != nil || !ok {
		return err
	}
	s.old, s.ranges = old.Refs, nil
	for _, r := range ranges {
		from, to := denseOffset(n.Holes, r.Offset), denseOffset(n.Holes, r.Offset+r.Length)
		if to > from {
			s.ranges = append(s.ranges, manifest.Extent{Offset: from, Length: to - from})
		}
	}
	s.ranges = join(s.ranges)
	return nil
}

func (s *splitter) run() ([]manifest.Ref, error) {
	for s.pos < s.total {
		if s.copy(); s.pos < s.total {
			if err := s.read(); err != nil {
				return nil, err
			}
		}
	}
	return s.out, nil
}

// lookahead is how far behind its end the bytes may lie that decide where a chunk ends.
const lookahead = 4

// copy takes over references as long as their chunks and the bytes that ended them have not changed.
func (s *splitter) copy() {
	for s.at == s.pos && s.i < len(s.old) {
		end := s.at + int64(s.old[s.i].Size)
		if end > s.total || len(s.ranges) > 0 && end+lookahead > s.ranges[0].Offset {
			return
		}
		s.out = append(s.out, s.old[s.i])
		s.pos, s.at, s.i = end, end, s.i+1
	}
}

// read splits the changed data again, until a cut after a change falls where one was before.
func (s *splitter) read() error {
	chunks := chunk.NewSplitter(io.NewSectionReader(s.data, s.pos, s.total-s.pos))
	for s.pos < s.total {
		b, err := chunks.Next()
		if err != nil {
			return fmt.Errorf("read a clone: %w", err)
		}
		ref, err := s.put(b)
		if err != nil {
			return err
		}
		s.out = append(s.out, ref)
		s.pos += int64(len(b))
		for len(s.ranges) > 0 && s.ranges[0].Offset+s.ranges[0].Length <= s.pos {
			s.ranges = s.ranges[1:]
		}
		for s.i < len(s.old) && s.at < s.pos {
			s.at += int64(s.old[s.i].Size)
			s.i++
		}
		if s.at == s.pos && s.i < len(s.old) && (len(s.ranges) == 0 || s.ranges[0].Offset > s.pos+chunk.MaxSize) {
			return nil
		}
	}
	return nil
}

// dense is a file without its holes.
type dense struct {
	f     *os.File
	holes []manifest.Extent
}

// ReadAt reads at an offset of the content without holes.
func (d *dense) ReadAt(p []byte, off int64) (read int, err error) {
	// i is the first hole behind the offset, and at the offset in the file.
	at, i := off, 0
	for ; i < len(d.holes) && d.holes[i].Offset <= at; i++ {
		at += d.holes[i].Length
	}
	for read < len(p) {
		part := p[read:]
		if i < len(d.holes) {
			part = part[:min(int64(len(part)), d.holes[i].Offset-at)]
		}
		n, err := d.f.ReadAt(part, at)
		read, at = read+n, at+int64(n)
		if err != nil {
			return read, err
		}
		if i < len(d.holes) && at == d.holes[i].Offset {
			at, i = at+d.holes[i].Length, i+1
		}
	}
	return read, nil
}

// denseOffset converts an offset of a file to one of its content without holes.
func denseOffset(holes []manifest.Extent, off int64) int64 {
	out := off
	for _, h := range holes {
		if h.Offset >= off {
			break
		}
		out -= min(h.Length, off-h.Offset)
	}
	return out
}
