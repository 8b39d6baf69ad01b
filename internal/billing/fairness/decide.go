package fairness

import (
	"cmp"
	"maps"
	"slices"

	"github.com/musterhq/muster/internal/interval"
)

// Decide divides a run into time that the renter pays for and suspensions.
//
// A rank is up when its host attested or signed that it was, or, within a gap, when every other rank signed that it was
// up itself, none of them signed that it was deaf to this rank, and its own host did not report it as not up. A pair of
// ranks is down when both signed that they received nothing from each other, or when one did and the other is not up or
// was silent to the platform. Time is billable when every rank is up, no pair is down and no undecided suspension was
// written.
//
// To blame for a suspended millisecond are, in this order: no one within a gap; the ranks that are not up; the ends of
// a pair that is down which were silent to the platform, or to the relay; otherwise no one.
func Decide(f Facts) Verdict {
	run := interval.Of(f.Run)
	gaps := f.Gaps.Clip(f.Run)
	n := len(f.Ranks)
	absent, silent, blame := make([]interval.Set, n), make([]interval.Set, n), make([]interval.Set, n)
	suspended := slices.Clone([]interval.Span(f.Undecided.Clip(f.Run)))
	for k, up := range f.up(gaps) {
		absent[k] = run.Minus(up)
		silent[k] = f.Ranks[k].Silent.Clip(f.Run).Minus(gaps)
		suspended = append(suspended, absent[k]...)
	}
	f.eachAccused(func(i, j int) {
		down := f.down(i, j, absent, silent)
		if len(down) == 0 {
			return
		}
		suspended = append(suspended, down...)
		for _, k := range []int{i, j} {
			blame[k] = blame[k].Union(down.Intersect(silent[k].Union(f.Ranks[k].RelaySilent)))
		}
	})
	out := interval.Of(suspended...)
	return Verdict{Billable: run.Minus(out), Suspensions: classify(out, gaps, absent, blame)}
}

// up returns when each rank is proven up within the run.
func (f Facts) up(gaps interval.Set) []interval.Set {
	out := make([]interval.Set, len(f.Ranks))
	for k, r := range f.Ranks {
		out[k] = r.Attested.Union(r.Signed).Clip(f.Run)
	}
	if len(gaps) == 0 {
		return out
	}
	// Vouching. after[k] is when all ranks from k on have signed; before grows along the loop.
	after := make([]interval.Set, len(f.Ranks)+1)
	after[len(f.Ranks)] = gaps
	for k := len(f.Ranks) - 1; k >= 0; k-- {
		after[k] = after[k+1].Intersect(f.Ranks[k].Signed)
	}
	before := gaps
	for k := range f.Ranks {
		vouched := before.Intersect(after[k+1]).Minus(f.Ranks[k].Unwell)
		for j := range f.Ranks {
			if deaf := f.Ranks[j].Deaf[k]; j != k && len(deaf) > 0 {
				vouched = vouched.Minus(deaf)
			}
		}
		out[k] = out[k].Union(vouched)
		before = before.Intersect(f.Ranks[k].Signed)
	}
	return out
}

// eachAccused visits once, as i < j, every pair of which at least one side signed that it was deaf to the other.
func (f Facts) eachAccused(visit func(i, j int)) {
	for i := range f.Ranks {
		for _, j := range slices.Sorted(maps.Keys(f.Ranks[i].Deaf)) {
			if j == i || j < 0 || j >= len(f.Ranks) {
				continue
			}
			if _, both := f.Ranks[j].Deaf[i]; i < j || !both {
				visit(min(i, j), max(i, j))
			}
		}
	}
}

// down returns when the pair i < j could not talk.
func (f Facts) down(i, j int, absent, silent []interval.Set) interval.Set {
	ij, ji := f.Ranks[i].Deaf[j].Clip(f.Run), f.Ranks[j].Deaf[i].Clip(f.Run)
	one := ij.Intersect(silent[j].Union(absent[j])).Union(ji.Intersect(silent[i].Union(absent[i])))
	if carried := f.Carried[Pair{i, j}]; len(carried) > 0 {
		one = one.Minus(carried)
	}
	return ij.Intersect(ji).Union(one)
}

// edge is where a set of a sweep begins (+1) or ends (−1).
type edge struct {
	at    int64
	what  edgeOf
	rank  int
	delta int
}

type edgeOf int

const (
	ofSuspended edgeOf = iota
	ofGaps
	ofAbsent
	ofBlame
)

// classify cuts the suspended time wherever its class or culprits change.
func classify(suspended, gaps interval.Set, absent, blame []interval.Set) []Suspension {
	var edges []edge
	add := func(s interval.Set, what edgeOf, rank int) {
		for _, i := range s {
			edges = append(edges, edge{i.Start, what, rank, +1}, edge{i.End, what, rank, -1})
		}
	}
	add(suspended, ofSuspended, 0)
	add(gaps, ofGaps, 0)
	for k := range absent {
		add(absent[k], ofAbsent, k)
		add(blame[k], ofBlame, k)
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })

	var out []Suspension
	var in, deaf int
	var missing, silent []int // ranks, ascending
	for k, e := range edges {
		switch e.what {
		case ofSuspended:
			in += e.delta
		case ofGaps:
			deaf += e.delta
		case ofAbsent:
			missing = toggle(missing, e.rank, e.delta)
		case ofBlame:
			silent = toggle(silent, e.rank, e.delta)
		}
		if in == 0 || k+1 == len(edges) || edges[k+1].at == e.at {
			continue
		}
		s := Suspension{Span: interval.Span{Start: e.at, End: edges[k+1].at}, Class: Undecided}
		switch {
		case deaf > 0:
			s.Class = Platform
		case len(missing) > 0:
			s.Class, s.Culprits = Proof, slices.Clone(missing)
		case len(silent) > 0:
			s.Class, s.Culprits = Silence, slices.Clone(silent)
		}
		if n := len(out); n > 0 && out[n-1].End == s.Start && out[n-1].Class == s.Class &&
			slices.Equal(out[n-1].Culprits, s.Culprits) {
			out[n-1].End = s.End
			continue
		}
		out = append(out, s)
	}
	return out
}

// toggle puts the rank into the ascending list, or takes it out.
func toggle(ranks []int, rank, delta int) []int {
	at, found := slices.BinarySearch(ranks, rank)
	switch {
	case delta > 0 && !found:
		return slices.Insert(ranks, at, rank)
	case delta < 0 && found:
		return slices.Delete(ranks, at, at+1)
	}
	return ranks
}
