package manifest

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/musterhq/muster/internal/data/chunk"
)

// A dirDecoder is the inverse of EncodeDir for a directory that comes in parts. It holds no more of it than two entries
// of the greatest size and one part.
type dirDecoder struct {
	most int    // entries that are decoded; 0: MaxEntries
	size int64  // of the whole encoding
	read int64  // bytes that were added
	rest []byte // what is not decoded yet
	buf  []byte // for rest, if it begins in an earlier part

	begun bool
	left  int    // entries that follow
	last  string // name of the entry before
	over  bool   // the caller wants no more
}

// add adds the next part and calls f with the entries that are whole now, until f returns false. With the last part it
// fails unless all of the directory was decoded.
func (d *dirDecoder) add(part []byte, f func(Entry) bool) error {
	if d.read += int64(len(part)); d.read > d.size || d.size > MaxDirBytes {
		return ErrCorrupt
	}
	if len(d.rest) == 0 {
		d.rest = part // it is not written to
	} else {
		d.buf = append(append(d.buf[:0], d.rest...), part...)
		d.rest = d.buf
	}
	whole := d.read == d.size
	for !d.over && (whole || len(d.rest) >= mostEntry) {
		x := decoder{rest: d.rest}
		if !d.begun {
			if !x.magic(dirMagic) {
				return ErrCorrupt
			}
			// The number is limited by the size that the directory states: it alone allocates nothing.
			n := x.uvarint()
			if x.bad || n > MaxEntries || int64(n) > d.size/minEntry {
				return ErrCorrupt
			}
			if d.most > 0 && int(n) > d.most {
				return ErrManyEntries
			}
			d.begun, d.left, d.rest = true, int(n), x.rest
			continue
		}
		if d.left == 0 {
			if !whole || len(d.rest) > 0 {
				return ErrCorrupt
			}
			return nil
		}
		e := x.entry()
		if x.bad || checkName(e.Name) != nil || check(&e) != nil || d.last >= e.Name {
			return ErrCorrupt
		}
		d.left, d.last, d.rest = d.left-1, e.Name, x.rest
		d.over = !f(e)
	}
	return nil
}

// DecodeRefs is the inverse of EncodeRefs.
func DecodeRefs(b []byte) ([]Ref, error) {
	d := decoder{rest: b}
	if !d.magic(refsMagic) {
		return nil, ErrCorrupt
	}
	refs := d.refs(MaxListRefs)
	if d.bad || len(refs) == 0 || len(d.rest) > 0 {
		return nil, ErrCorrupt
	}
	return refs, nil
}

// DecodeRoot is the inverse of EncodeRoot.
func DecodeRoot(b []byte) (r Root, err error) {
	d := decoder{rest: b}
	if !d.magic(rootMagic) {
		return r, ErrCorrupt
	}
	for _, n := range []*int64{&r.Files, &r.Dirs, &r.LogicalBytes, &r.LeftOut} {
		*n = d.int64()
	}
	r.Dir = d.entry()
	if d.bad || len(d.rest) > 0 || r.Dir.Kind != Dir || r.Dir.Name != "" || check(&r.Dir) != nil {
		return Root{}, ErrCorrupt
	}
	return r, nil
}

// The fewest bytes of an encoded entry, extended attribute, hole and reference: they bound how many there can be.
const (
	minEntry = 9
	minXAttr = 8
	minHole  = 2
	minRef   = 36
)

// mostEntry is more than the bytes of any entry that decodes: in a part of a directory that is longer, an entry that
// is cut off is a malformed one.
const mostEntry = 1<<10 + MaxTarget + 4*MaxXAttrs + MaxHoles*2*binary.MaxVarintLen64 +
	MaxRefs*(32+binary.MaxVarintLen64+3*binary.MaxVarintLen32)

// decoder reads an encoding. After the first fault, bad is set and all values are zero.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) magic(m string) bool {
	rest, ok := strings.CutPrefix(string(d.rest[:min(len(d.rest), len(m))]), m)
	if !ok || rest != "" {
		d.bad = true
		return false
	}
	d.rest = d.rest[len(m):]
	return true
}

func (d *decoder) entry() (e Entry) {
	e.Name = d.text(MaxName)
	e.Kind = Kind(d.byte())
	e.Mode, e.UID, e.GID = d.uint32(), d.uint32(), d.uint32()
	e.MTime = d.varint()
	for n, size := d.count(minXAttr), 0; n > 0; n-- {
		x := XAttr{d.text(MaxName), d.text(MaxXAttrs)}
		if size += len(x.Name) + len(x.Value); d.bad || x.Name == "" || size > MaxXAttrs {
			d.bad = true
			return e
		}
		e.XAttrs = append(e.XAttrs, x)
	}
	switch e.Kind {
	case Symlink:
		e.Target = d.text(MaxTarget)
		return e
	case File:
		e.Link = d.uvarint()
		n := d.count(minHole)
		if n > MaxHoles {
			d.bad = true
		}
		for range n {
			if d.bad {
				return e
			}
			e.Holes = append(e.Holes, Extent{d.int64(), d.int64()})
		}
	case Dir:
	default:
		d.bad = true
		return e
	}
	e.Size = d.int64()
	e.Body.Lists = int(d.uint32())
	e.Body.Refs = d.refs(MaxRefs)
	return e
}

func (d *decoder) refs(most int) []Ref {
	n := d.count(minRef)
	if n > most {
		d.bad = true
	}
	if d.bad || n == 0 {
		return nil
	}
	refs := make([]Ref, n)
	for i := range refs {
		r := &refs[i]
		if len(d.rest) < len(chunk.ID{}) {
			d.bad = true
			return nil
		}
		r.ID = chunk.ID(d.rest)
		d.rest = d.rest[len(r.ID):]
		r.Pack, r.Offset, r.Length, r.Size = d.int64(), d.uint32(), d.uint32(), d.uint32()
		if d.bad || !r.ok() {
			d.bad = true
			return nil
		}
	}
	return refs
}

// count returns how many things of at least size bytes follow.
func (d *decoder) count(size int) int {
	n := d.uvarint()
	if n > uint64(len(d.rest)/size) {
		d.bad = true
		return 0
	}
	return int(n)
}

func (d *decoder) text(most int) string {
	n := d.count(1)
	if n > most {
		d.bad = true
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.bad = true
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

// uvarint reads a number in its shortest form.
func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || n > 1 && d.rest[n-1] == 0 {
		d.bad = true
	}
	if d.bad {
		d.rest = nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) varint() int64 {
	u := d.uvarint()
	v := int64(u >> 1)
	if u&1 != 0 {
		v = ^v
	}
	return v
}

func (d *decoder) int64() int64 {
	v := d.uvarint()
	if v > math.MaxInt64 {
		d.bad = true
		return 0
	}
	return int64(v)
}

func (d *decoder) uint32() uint32 {
	v := d.uvarint()
	if v > math.MaxUint32 {
		d.bad = true
		return 0
	}
	return uint32(v)
}
