// Package interval is sets of milliseconds as sorted half-open spans.
//
// It is pure: no clock, no I/O, no errors. Every function returns a new value and leaves its arguments as they are. The
// cost of each operation is proportional to the number of spans (times a logarithm where they must be sorted), never to
// the time that they cover.
package interval

import (
	"cmp"
	"slices"
)

// Span is the time from Start up to but not including End, in unix milliseconds. A span whose End is not after its
// Start is empty.
type Span struct{ Start, End int64 }

// Len returns the length of the span in milliseconds: 0 for an empty one.
func (s Span) Len() int64 { return max(0, s.End-s.Start) }

// And returns the span that lies in both. It may be empty.
func (s Span) And(t Span) Span { return Span{max(s.Start, t.Start), min(s.End, t.End)} }

// Set is a set of milliseconds: non-empty spans in order that neither overlap nor touch. Equal sets are therefore equal
// slices. The zero value is the empty set.
type Set []Span

// Of returns the union of the spans, which may be empty, overlap and come in any order.
func Of(in ...Span) Set {
	in = slices.DeleteFunc(slices.Clone(in), func(s Span) bool { return s.End <= s.Start })
	slices.SortFunc(in, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	out := in[:0]
	for _, s := range in {
		if n := len(out); n > 0 && s.Start <= out[n-1].End {
			out[n-1].End = max(out[n-1].End, s.End)
			continue
		}
		out = append(out, s)
	}
	return Set(out)
}

// FromFlat returns the set of {start, end, start, end, …}. A last number without a partner is ignored.
func FromFlat(v []int64) Set {
	in := make([]Span, 0, len(v)/2)
	for k := 0; k+1 < len(v); k += 2 {
		in = append(in, Span{v[k], v[k+1]})
	}
	return Of(in...)
}

// Flat returns the set as {start, end, start, end, …}.
func (s Set) Flat() []int64 {
	out := make([]int64, 0, 2*len(s))
	for _, i := range s {
		out = append(out, i.Start, i.End)
	}
	return out
}

// Union returns every millisecond that is in at least one of the two sets.
func (s Set) Union(t Set) Set {
	switch {
	case len(s) == 0:
		return slices.Clone(t)
	case len(t) == 0:
		return slices.Clone(s)
	}
	return Of(append(slices.Clone([]Span(s)), t...)...)
}

// Intersect returns every millisecond that is in both sets.
func (s Set) Intersect(t Set) Set {
	var out Set
	for i, j := 0, 0; i < len(s) && j < len(t); {
		if both := s[i].And(t[j]); both.Len() > 0 {
			out = append(out, both)
		}
		if s[i].End < t[j].End {
			i++
		} else {
			j++
		}
	}
	return out
}

// Minus returns every millisecond of s that is not in t.
func (s Set) Minus(t Set) Set {
	var out Set
	j := 0
	for _, i := range s {
		for j < len(t) && t[j].End <= i.Start {
			j++
		}
		at := i.Start
		for k := j; k < len(t) && t[k].Start < i.End; k++ {
			if t[k].Start > at {
				out = append(out, Span{at, t[k].Start})
			}
			at = max(at, t[k].End)
		}
		if at < i.End {
			out = append(out, Span{at, i.End})
		}
	}
	return out
}

// Clip returns the part of the set within the span.
func (s Set) Clip(w Span) Set { return s.Intersect(Of(w)) }

// Len returns the number of milliseconds in the set.
func (s Set) Len() (ms int64) {
	for _, i := range s {
		ms += i.Len()
	}
	return ms
}

// Contains reports whether the millisecond is in the set.
func (s Set) Contains(ms int64) bool {
	k, found := slices.BinarySearchFunc(s, ms, func(i Span, ms int64) int { return cmp.Compare(i.Start, ms) })
	return found || k > 0 && ms < s[k-1].End
}
