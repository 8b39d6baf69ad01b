package model

import (
	"math/rand/v2"
	"slices"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
)

// plenty is a bond that nothing exhausts, in nano-units.
const plenty = int64(1e15)

// gangOperators are the operators of random gangs, by number.
var gangOperators = func() (out [8]id.Org) {
	for k := range out {
		out[k] = id.New[id.Org]()
	}
	return out
}()

// randomGang is a gang of two to five ranks of up to four operators. Every rank lies at random but for one, the honest
// one, which is alone with its operator: it attests and signs every millisecond, reports in time and says what it likes
// about its peers.
func randomGang(rnd *rand.Rand) (g gang, honest int) {
	n := 2 + rnd.IntN(4)
	honest = rnd.IntN(n)
	g = gang{
		from:         1_700_000_000_000 + rnd.Int64N(1000),
		ticks:        16 + rnd.IntN(32),
		carried:      map[[2]int]bits{},
		forUndecided: 500_000,
		forAll:       1_000_000,
	}
	g.gap, g.written = g.bits(rnd, .1*float64(rnd.IntN(3))), g.bits(rnd, .05*float64(rnd.IntN(2)))
	if rnd.IntN(4) == 0 {
		fee := rnd.Int64N(40_000)
		g.fee, g.forUndecided, g.forAll = &fee, rnd.Int64N(1_000_001), rnd.Int64N(1_000_001)
	}
	for k := range n {
		r := gangRank{
			operator:    rnd.IntN(3),
			rate:        1 + rnd.Int64N(40_000_000),
			ppm:         700_000 + rnd.Int64N(300_001),
			bond:        []int64{0, rnd.Int64N(100_000), plenty}[rnd.IntN(3)],
			required:    g.bits(rnd, 1),
			signed:      g.bits(rnd, .8),
			attested:    g.bits(rnd, .8),
			silent:      g.bits(rnd, .2),
			relaySilent: g.bits(rnd, .1),
			deaf:        map[int]bits{},
		}
		r.standby = min(r.rate, 30_000_000)
		if rnd.IntN(3) == 0 {
			r.unwell = g.bits(rnd, .2)
			r.signed, r.attested = without(r.signed, r.unwell), without(r.attested, r.unwell)
		}
		if rnd.IntN(5) == 0 {
			r.required = g.bits(rnd, .7)
		}
		if k == honest {
			r.operator, r.signed, r.attested, r.unwell = 7, g.bits(rnd, 1), g.bits(rnd, 1), nil
			r.silent, r.relaySilent = g.bits(rnd, 0), g.bits(rnd, 0)
		}
		for j := range n {
			if j != k && rnd.IntN(5) < 3 {
				r.deaf[j] = g.bits(rnd, .3)
			}
			if j > k && rnd.IntN(8) == 0 {
				g.carried[[2]int{k, j}] = g.bits(rnd, .5)
			}
		}
		g.ranks = append(g.ranks, r)
	}
	return g, honest
}

// bits is a random set of which about a part p is in, in stretches.
func (g gang) bits(rnd *rand.Rand, p float64) bits {
	out := make(bits, g.ticks)
	on := rnd.Float64() < p
	for t := range out {
		if rnd.Float64() < .08 {
			on = rnd.Float64() < p
		}
		out[t] = on || p == 1
	}
	return out
}

// without is a but not b.
func without(a, b bits) bits {
	out := make(bits, len(a))
	for t := range a {
		out[t] = a[t] && !b.at(t)
	}
	return out
}

// clone is a copy of which ranks and gaps may be replaced.
func (g gang) clone() gang {
	g.ranks = slices.Clone(g.ranks)
	return g
}

// spans returns a set in the form in which facts arrive: in pieces that overlap, repeat and come in any order.
func (g gang) spans(rnd *rand.Rand, b bits) interval.Set {
	var in []interval.Span
	for t := 0; t < len(b); t++ {
		if !b[t] {
			continue
		}
		end := t
		for end < len(b) && b[end] {
			end++
		}
		for at := t; at < end; { // the whole stretch, in pieces that may reach back over the last one
			next := min(end, at+1+rnd.IntN(40))
			in = append(in, interval.Span{Start: g.from + int64(max(t, at-rnd.IntN(3))), End: g.from + int64(next)})
			at = next
		}
		t = end
	}
	if len(in) > 0 && rnd.IntN(2) == 0 {
		in = append(in, in[rnd.IntN(len(in))])
	}
	rnd.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
	return interval.Of(in...)
}

// leases are the terms of the gang's ranks.
func (g gang) leases() []fairness.Lease {
	out := make([]fairness.Lease, len(g.ranks))
	for k, r := range g.ranks {
		out[k] = fairness.Lease{
			Operator:    gangOperators[r.operator],
			Rate:        money.Micro(r.rate),
			StandbyRate: money.Micro(r.standby),
			SharePPM:    r.ppm,
			Bond:        money.Nano(r.bond),
		}
	}
	return out
}

// runs returns the gang's story as input of the rule: cut where the required ranks change and at random moments, in any
// order, with sets that reach beyond each cut.
func (g gang) runs(rnd *rand.Rand) []fairness.Run {
	all := fairness.Facts{Gaps: g.spans(rnd, g.gap), Undecided: g.spans(rnd, g.written)}
	facts := make([]fairness.Rank, len(g.ranks))
	for k, r := range g.ranks {
		facts[k] = fairness.Rank{
			Lease:       k,
			Signed:      g.spans(rnd, r.signed),
			Attested:    g.spans(rnd, r.attested),
			Unwell:      g.spans(rnd, r.unwell),
			Silent:      g.spans(rnd, r.silent),
			RelaySilent: g.spans(rnd, r.relaySilent),
		}
	}
	var out []fairness.Run
	for t := 0; t < g.ticks; {
		end := t + 1
		for end < g.ticks && rnd.IntN(60) > 0 && g.sameRanks(t, end) {
			end++
		}
		f := all
		f.Run = interval.Span{Start: g.from + int64(t), End: g.from + int64(end)}
		var who []int
		for k, r := range g.ranks {
			if r.required[t] {
				who = append(who, k)
			}
		}
		f.Carried = map[fairness.Pair]interval.Set{}
		for i, k := range who {
			r := facts[k]
			r.Deaf = map[int]interval.Set{}
			for j, peer := range who {
				if d, ok := g.ranks[k].deaf[peer]; ok {
					r.Deaf[j] = g.spans(rnd, d)
				}
				if c, ok := g.carried[[2]int{k, peer}]; ok {
					f.Carried[fairness.Pair{A: i, B: j}] = g.spans(rnd, c)
				}
			}
			f.Ranks = append(f.Ranks, r)
		}
		if len(who) > 0 {
			out = append(out, fairness.Run{Facts: f, Verdict: fairness.Decide(f)})
		}
		t = end
	}
	rnd.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func (g gang) sameRanks(t, u int) bool {
	for _, r := range g.ranks {
		if r.required[t] != r.required[u] {
			return false
		}
	}
	return true
}

// usageFee is what the caps on relief count from.
func (g gang) usageFee(v gangVerdict) money.Nano {
	if g.fee != nil {
		return money.Nano(*g.fee)
	}
	return money.Nano(v.usageFee)
}

func (g gang) caps() fairness.Relief {
	return fairness.Relief{UndecidedPPM: g.forUndecided, TotalPPM: g.forAll}
}
