package manifest

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/musterhq/muster/internal/data/chunk"
)

// DecodeDir is the inverse of EncodeDir.
func DecodeDir(b []byte) ([]Entry, error) {
	d := decoder{rest: b}
	if len(b) > MaxDirBytes || !d.magic(dirMagic) {
		return nil, ErrCorrupt
	}
	n := d.count(minEntry)
	entries := make([]Entry, 0, n)
	for range n {
		e := d.entry()
		if d.bad || checkName(e.Name) != nil || check(&e) != nil ||
			len(entries) > 0 && entries[len(entries)-1].Name >= e.Name {
			return nil, ErrCorrupt
		}
		entries = append(entries, e)
	}
	if d.bad || len(d.rest) > 0 {
		return nil, ErrCorrupt
	}
	return entries, nil
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
	for range d.count(minXAttr) {
		e.XAttrs = append(e.XAttrs, XAttr{d.text(MaxName), d.text(MaxXAttrs)})
		if d.bad {
			return e
		}
	}
	switch e.Kind {
	case Symlink:
		e.Target = d.text(MaxTarget)
		return e
	case File:
		e.Link = d.uvarint()
		for range d.count(minHole) {
			e.Holes = append(e.Holes, Extent{d.int64(), d.int64()})
			if d.bad {
				return e
			}
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
