package manifest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// First bytes of the encodings. The number is the version; another form gets another number.
const (
	dirMagic  = "MSTRDIR1"
	refsMagic = "MSTRREF1"
	rootMagic = "MSTRROOT1"
)

// EncodeDir encodes the entries of a directory, which it sorts. It fails if an entry breaks a limit or a rule, and for
// two of the same name.
func EncodeDir(entries []Entry) ([]byte, error) {
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	b := []byte(dirMagic)
	b = binary.AppendUvarint(b, uint64(len(entries)))
	for i := range entries {
		e := &entries[i]
		if i > 0 && entries[i-1].Name == e.Name {
			return nil, fmt.Errorf("two entries are named %q", e.Name)
		}
		if err := checkName(e.Name); err != nil {
			return nil, err
		}
		if err := check(e); err != nil {
			return nil, fmt.Errorf("entry %q: %w", e.Name, err)
		}
		b = appendEntry(b, e)
	}
	if len(b) > MaxDirBytes || len(entries) > MaxEntries {
		return nil, fmt.Errorf("a directory of %d entries, which take %d bytes, is too big", len(entries), len(b))
	}
	return b, nil
}

// EncodeRefs encodes a list of 1 to MaxListRefs references, for a chunk.
func EncodeRefs(refs []Ref) ([]byte, error) {
	if len(refs) == 0 || len(refs) > MaxListRefs {
		return nil, fmt.Errorf("a list of %d references", len(refs))
	}
	b := []byte(refsMagic)
	b = binary.AppendUvarint(b, uint64(len(refs)))
	for _, r := range refs {
		if !r.ok() {
			return nil, fmt.Errorf("a reference to nothing")
		}
		b = appendRef(b, r)
	}
	return b, nil
}

// EncodeRoot encodes the root of a snapshot, for a chunk.
func EncodeRoot(r Root) ([]byte, error) {
	if r.Dir.Kind != Dir || r.Dir.Name != "" {
		return nil, fmt.Errorf("the root is not a directory without a name")
	}
	if err := check(&r.Dir); err != nil {
		return nil, fmt.Errorf("the root: %w", err)
	}
	b := []byte(rootMagic)
	for _, n := range []int64{r.Files, r.Dirs, r.LogicalBytes, r.LeftOut} {
		if n < 0 {
			return nil, fmt.Errorf("a count below 0 in the root")
		}
		b = binary.AppendUvarint(b, uint64(n))
	}
	return appendEntry(b, &r.Dir), nil
}

func appendEntry(b []byte, e *Entry) []byte {
	b = appendString(b, e.Name)
	b = append(b, byte(e.Kind))
	for _, n := range []uint64{uint64(e.Mode), uint64(e.UID), uint64(e.GID)} {
		b = binary.AppendUvarint(b, n)
	}
	b = binary.AppendVarint(b, e.MTime)
	b = binary.AppendUvarint(b, uint64(len(e.XAttrs)))
	for _, x := range e.XAttrs {
		b = appendString(appendString(b, x.Name), x.Value)
	}
	switch e.Kind {
	case Symlink:
		return appendString(b, e.Target)
	case File:
		b = binary.AppendUvarint(b, e.Link)
		b = binary.AppendUvarint(b, uint64(len(e.Holes)))
		for _, h := range e.Holes {
			b = binary.AppendUvarint(b, uint64(h.Offset))
			b = binary.AppendUvarint(b, uint64(h.Length))
		}
	}
	b = binary.AppendUvarint(b, uint64(e.Size))
	b = binary.AppendUvarint(b, uint64(e.Body.Lists))
	b = binary.AppendUvarint(b, uint64(len(e.Body.Refs)))
	for _, r := range e.Body.Refs {
		b = appendRef(b, r)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendRef(b []byte, r Ref) []byte {
	b = append(b, r.ID[:]...)
	for _, n := range []uint64{uint64(r.Pack), uint64(r.Offset), uint64(r.Length), uint64(r.Size)} {
		b = binary.AppendUvarint(b, n)
	}
	return b
}
