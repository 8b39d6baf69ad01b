package model

import (
	"cmp"
	"math/big"
	"slices"
)

// facts are all that a lease's bill may depend on. Moments are unix ms, prices micro-units per hour.
type facts struct {
	segments, windows [][2]int64
	life              [2]int64
	prices            [][2]int64 // from, rate; by from, the first from 0
	ppm               int64
}

// verdict is what a lease must have been charged.
type verdict struct {
	renter, host *big.Int // nano-units
	ms           int64
	exact        *big.Int // before any rounding: Σ rate × ms, in micro-units·ms per hour
}

// judge counts the plain way: walk over every moment at which anything changes, with a counter of what covers it.
func (f facts) judge() verdict {
	type event struct {
		at                   int64
		segment, window, own int
	}
	var events []event
	cover := func(spans [][2]int64, what event) {
		for _, s := range spans {
			if s[0] < s[1] {
				events = append(events, event{s[0], what.segment, what.window, what.own}, event{s[1], -what.segment, -what.window,
					-what.own})
			}
		}
	}
	cover(f.segments, event{segment: 1})
	cover(f.windows, event{window: 1})
	cover([][2]int64{f.life}, event{own: 1})
	for _, p := range f.prices[1:] {
		events = append(events, event{at: p[0]})
	}
	slices.SortFunc(events, func(a, b event) int {
		if a.at < b.at {
			return -1
		}
		if a.at > b.at {
			return 1
		}
		return 0
	})
	var segment, window, own int
	v := verdict{renter: new(big.Int), host: new(big.Int), exact: new(big.Int)}
	for i, e := range events {
		segment, window, own = segment+e.segment, window+e.window, own+e.own
		if i+1 == len(events) || segment == 0 || window == 0 || own == 0 {
			continue
		}
		ms := events[i+1].at - e.at
		rate := f.prices[0][1]
		for _, p := range f.prices[1:] {
			if p[0] <= e.at {
				rate = p[1]
			}
		}
		v.ms += ms
		v.exact.Add(v.exact, new(big.Int).Mul(big.NewInt(rate), big.NewInt(ms)))
	}
	v.renter.Div(v.exact, big.NewInt(3600)) // µ·ms/h: 3.6e6 ms an hour, 1000 nano a micro
	v.host.Div(new(big.Int).Mul(v.renter, big.NewInt(f.ppm)), big.NewInt(1_000_000))
	return v
}

// before returns the same story up to a moment.
func (f facts) before(ms int64) facts {
	f.life[1] = min(f.life[1], ms)
	return f
}

// within is the same story with a host that signed every millisecond and with windows in this time only.
func (f facts) within(windows ...[2]int64) facts {
	f.segments, f.windows = [][2]int64{f.life}, windows
	return f
}

// from is what of the segments lies after a moment, as spans that neither overlap nor touch, in order.
func (f facts) from(ms int64) (out [][2]int64) {
	var edges [][2]int64 // where, and by how much the cover changes there
	for _, s := range f.segments {
		if s[0] = max(s[0], ms); s[0] < s[1] {
			edges = append(edges, [2]int64{s[0], 1}, [2]int64{s[1], -1})
		}
	}
	slices.SortFunc(edges, func(a, b [2]int64) int {
		// at one place the beginnings come first, so that spans that touch are one
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(b[1], a[1]))
	})
	var cover, since int64
	for _, e := range edges {
		if cover == 0 {
			since = e[0]
		}
		if cover += e[1]; cover == 0 {
			out = append(out, [2]int64{since, e[0]})
		}
	}
	return out
}
