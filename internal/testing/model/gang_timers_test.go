package model

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
)

// timers are the control plane's (see docs/losses.md), in ms.
type timers struct{ lostAfter, lossGrace, peerSilence, oneSided, undGrace, undSoon, young, replaceWait int64 }

func ms(d time.Duration) int64 { return d.Milliseconds() }

var finalTimers = timers{
	lostAfter:   ms(35 * time.Second),
	lossGrace:   ms(90 * time.Second),
	peerSilence: ms(fairness.PeerSilence),
	oneSided:    ms(30 * time.Second),
	undGrace:    ms(45 * time.Second),
	undSoon:     ms(2 * time.Second),
	young:       ms(15 * time.Minute),
	replaceWait: ms(2 * time.Minute),
}

// story is a run as its hosts would go on if it were never ended.
type story struct {
	fairness.Facts
	leases []fairness.Lease
	unwell []interval.Set // by rank: when its host says that it is not well
	// doubts are the moments at which each rank's host was in doubt within the last hour, in this run or before.
	doubts [][]int64
}

// ending is how the control plane ends a run: by the final loss of a rank, undecided (rank −1), or not at all.
type ending struct {
	at   int64
	rank int
}

const (
	undecidedEnd = -1
	noEnd        = -2
)

// end plays the timers on a story: it writes undecided suspensions, remembers doubts, and cuts the run where it ends.
func (w timers) end(s *story) ending {
	e := ending{s.Run.End, noEnd}
	sooner := func(at int64, rank int) {
		if at < e.at {
			e = ending{at, rank}
		}
	}
	for k := range s.Ranks {
		for _, d := range w.doubtsOf(s, k) {
			if d.Start >= e.at {
				break
			}
			if fairness.DoubtIsFinal(s.doubts[k], d.Start) || w.poor(s, k, d.Start) {
				sooner(d.Start, k)
				break
			}
			s.doubts[k] = append(s.doubts[k], d.Start)
			if d.Len() > w.lossGrace {
				sooner(d.Start+w.lossGrace, k)
				break
			}
		}
	}
	w.dispute(s, &e)
	for _, u := range fairness.Decide(s.Facts).Suspensions {
		grace := w.undGrace
		if u.Start-s.Run.Start < w.young {
			grace = w.undSoon
		}
		if at := u.Start + w.peerSilence + grace; u.Class == fairness.Undecided && !s.Undecided.Contains(u.Start) &&
			u.End > at {
			sooner(at, undecidedEnd)
		}
	}
	s.Run.End = e.at
	return e
}

// doubtsOf is when the control plane doubts a rank: from the moment at which its host reports it unwell, or once its
// host has been silent for LostAfter, or, for a moment, when its late report confirms what a peer has claimed about it.
func (w timers) doubtsOf(s *story, k int) []interval.Span {
	out := slices.Clone(s.unwell[k])
	for _, q := range s.Ranks[k].Silent.Minus(s.Gaps) {
		if q.Len() > w.lostAfter {
			out = append(out, interval.Span{Start: q.Start + w.lostAfter, End: q.End})
			continue
		}
		for j, d := range s.Ranks[k].Deaf {
			if both := d.Intersect(s.Ranks[j].Deaf[k]).Clip(q); len(both) > 0 {
				out = append(out, interval.Span{Start: q.End, End: q.End})
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b interval.Span) int { return cmp.Compare(a.Start, b.Start) })
	return out
}

// poor reports whether less than BondFloor is left in the rank's bond.
func (w timers) poor(s *story, k int, at int64) bool {
	f := s.Facts
	f.Run.End = at
	left := s.leases[k].Bond
	for _, d := range fairness.Pay(s.leases, []fairness.Run{{
		Facts:   f,
		Verdict: fairness.Decide(f),
	}}, 0, fairness.DefaultRelief).Standby {
		if d.Culprit == k {
			left -= d.Paid
		}
	}
	return left < fairness.Bond(s.leases, k, fairness.BondFloor)
}

// dispute suspends a run, from then on, that one side calls broken for longer than OneSided while the other reports
// that it is well, and ends it after UndGrace. A rank that is silent is in doubt instead.
func (w timers) dispute(s *story, e *ending) {
	for i := range s.Ranks {
		for j, d := range s.Ranks[i].Deaf {
			accused := s.Ranks[j]
			for _, c := range d.Minus(accused.Deaf[i]).Intersect(accused.Attested).Minus(accused.Silent) {
				from := c.Start + w.peerSilence + w.oneSided
				if from >= min(c.End, e.at) || w.othersReceive(s, i, j, from) {
					continue
				}
				if end := from + w.undGrace; c.End > end && end < e.at {
					*e = ending{end, undecidedEnd}
				}
				s.Undecided = s.Undecided.Union(interval.Of(interval.Span{Start: from, End: min(c.End, from+w.undGrace)}))
			}
		}
	}
}

// othersReceive reports whether a rank of a third operator receives from the accused j.
func (w timers) othersReceive(s *story, i, j int, at int64) bool {
	for k := range s.Ranks {
		op := s.leases[k].Operator
		if k != i && k != j && op != s.leases[i].Operator && op != s.leases[j].Operator && !s.Ranks[k].Deaf[j].Contains(at) {
			return true
		}
	}
	return false
}

// units is an amount for a table.
func units(n money.Nano, hours float64) float64 {
	return math.Round(float64(n)/float64(money.Unit)/hours*1000) / 1000
}
