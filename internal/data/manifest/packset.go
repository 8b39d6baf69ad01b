package manifest

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// A PackSet is a set of numbers of packs. Its zero value is empty. It is not safe for concurrent use.
type PackSet struct {
	runs []Run // sorted, not empty, not adjacent
}

// A Run is the numbers First to Last.
type Run struct{ First, Last int64 }

// NewPackSet returns a set of numbers.
func NewPackSet(numbers ...int64) *PackSet {
	s := new(PackSet)
	for _, n := range numbers {
		s.Add(n)
	}
	return s
}

// Add adds a number, which must be at least 1.
func (s *PackSet) Add(n int64) { s.addRun(Run{n, n}) }

// AddAll adds the numbers of o.
func (s *PackSet) AddAll(o *PackSet) {
	for _, r := range o.runs {
		s.addRun(r)
	}
}

func (s *PackSet) addRun(r Run) {
	// The runs from i to before j touch or overlap r.
	i, _ := slices.BinarySearchFunc(s.runs, r.First, func(x Run, n int64) int { return cmpInt(x.Last+1, n) })
	j := i
	for ; j < len(s.runs) && s.runs[j].First <= r.Last+1; j++ {
		r.First, r.Last = min(r.First, s.runs[j].First), max(r.Last, s.runs[j].Last)
	}
	s.runs = slices.Replace(s.runs, i, j, r)
}

func cmpInt(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Has reports whether n is in the set.
func (s *PackSet) Has(n int64) bool {
	i, _ := slices.BinarySearchFunc(s.runs, n, func(x Run, n int64) int { return cmpInt(x.Last, n) })
	return i < len(s.runs) && s.runs[i].First <= n
}

// Runs returns the runs of consecutive numbers, in their order.
func (s *PackSet) Runs() []Run { return slices.Clone(s.runs) }

// Len returns how many numbers the set has.
func (s *PackSet) Len() (n int64) {
	for _, r := range s.runs {
		n += r.Last - r.First + 1
	}
	return n
}

// Encode returns the set's only encoding: for each run, how far its first number is after the last one of the run
// before (after 0 for the first run) and how many further numbers it has, as varints. The empty set is no bytes.
func (s *PackSet) Encode() []byte {
	b := []byte{}
	last := int64(0)
	for _, r := range s.runs {
		b = binary.AppendUvarint(b, uint64(r.First-last))
		b = binary.AppendUvarint(b, uint64(r.Last-r.First))
		last = r.Last
	}
	return b
}

// DecodePackSet is the inverse of Encode.
func DecodePackSet(b []byte) (*PackSet, error) {
	d := decoder{rest: b}
	s := new(PackSet)
	last := int64(0)
	for len(d.rest) > 0 {
		gap, more := d.int64(), d.int64()
		// A gap of 0 or 1 would be the same number or the next one, which belongs to the run before.
		if d.bad || gap < 1 || last > 0 && gap < 2 || gap > math.MaxInt64-1-last || more > math.MaxInt64-1-last-gap {
			return nil, fmt.Errorf("set of packs: %w", ErrCorrupt)
		}
		r := Run{last + gap, last + gap + more}
		s.runs = append(s.runs, r)
		last = r.Last
	}
	if d.bad {
		return nil, fmt.Errorf("set of packs: %w", ErrCorrupt)
	}
	return s, nil
}
