package metering

import (
	"slices"
	"strconv"
)

// Interval is the time from Start up to but not including End, in unix milliseconds.
type Interval struct{ Start, End int64 }

// Len is the interval's length in milliseconds, 0 for an empty or backward one.
func (i Interval) Len() int64 { return max(0, i.End-i.Start) }

func (i Interval) and(j Interval) Interval { return Interval{max(i.Start, j.Start), min(i.End, j.End)} }

// Set is a set of milliseconds: non-empty intervals in order that neither overlap nor touch, so that equal sets are
// equal slices.
type Set []Interval

// SetOf is the union of any intervals, in any order.
func SetOf(in ...Interval) Set {
	in = slices.DeleteFunc(slices.Clone(in), func(i Interval) bool { return i.End <= i.Start })
	slices.SortFunc(in, func(a, b Interval) int {
		switch {
		case a.Start < b.Start:
			return -1
		case a.Start > b.Start:
			return 1
		}
		return 0
	})
	out := in[:0]
	for _, i := range in {
		if n := len(out); n > 0 && i.Start <= out[n-1].End {
			out[n-1].End = max(out[n-1].End, i.End)
			continue
		}
		out = append(out, i)
	}
	return Set(out)
}

// Union is every millisecond that is in either.
func (s Set) Union(t Set) Set { return SetOf(append(slices.Clone([]Interval(s)), t...)...) }

// Intersect is every millisecond that is in both.
func (s Set) Intersect(t Set) Set {
	var out Set
	for i, j := 0, 0; i < len(s) && j < len(t); {
		if both := s[i].and(t[j]); both.Len() > 0 {
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

// Minus is every millisecond of s that is not in t.
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
				out = append(out, Interval{at, t[k].Start})
			}
			at = max(at, t[k].End)
		}
		if at < i.End {
			out = append(out, Interval{at, i.End})
		}
	}
	return out
}

// Clip is the part of s within i.
func (s Set) Clip(i Interval) Set { return s.Intersect(SetOf(i)) }

// Len is how many milliseconds are in the set.
func (s Set) Len() (ms int64) {
	for _, i := range s {
		ms += i.Len()
	}
	return ms
}

// literal is {start,end,start,end,…}: a bigint[] as PostgreSQL reads it.
func (s Set) literal() string {
	b := []byte{'{'}
	for k, i := range s {
		if k > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, i.Start, 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, i.End, 10)
	}
	return string(append(b, '}'))
}

func setFromFlat(v []int64) Set {
	in := make([]Interval, 0, len(v)/2)
	for k := 0; k+1 < len(v); k += 2 {
		in = append(in, Interval{v[k], v[k+1]})
	}
	return SetOf(in...)
}
