package model

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/money"
)

// envGangs says how many random gangs TestEveryGangIsTheOracles plays.
const envGangs = "MUSTER_PROOF_GANGS"

func gangs(t *testing.T) int {
	t.Helper()
	s := os.Getenv(envGangs)
	if s == "" {
		return 2_000
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a number of gangs", envGangs, s)
	}
	return n
}

// TestEveryGangIsTheOracles plays random gangs with liars, gaps and empty bonds: internal/billing/fairness must agree
// with the oracle to the millisecond and the nano-unit, and its invariants must hold.
func TestEveryGangIsTheOracles(t *testing.T) {
	t.Parallel()
	start := rand.Uint64()
	t.Logf("seed %d", start)
	for i := range gangs(t) {
		seed := start + uint64(i)
		rnd := rand.New(rand.NewPCG(seed, 12))
		g, honest := randomGang(rnd)
		v := g.judge()
		if err := g.compare(rnd, v); err != nil {
			t.Fatalf("gang %d: %v", seed, err)
		}
		if err := g.invariants(v, honest); err != nil {
			t.Fatalf("gang %d: %v", seed, err)
		}
		for _, check := range []func(*rand.Rand, gangVerdict, int) error{g.moreProof, g.oneVoice, g.outage} {
			if rnd.IntN(3) == 0 {
				if err := check(rnd, v, honest); err != nil {
					t.Fatalf("gang %d: %v", seed, err)
				}
			}
		}
	}
}

// compare lets the rule judge what the oracle has judged.
func (g gang) compare(rnd *rand.Rand, v gangVerdict) error {
	runs := g.runs(rnd)
	for _, r := range runs {
		if err := g.compareVerdict(r, v); err != nil {
			return err
		}
	}
	m := fairness.Pay(g.leases(), runs, g.usageFee(v), g.caps())
	for k := range g.ranks {
		want := fairness.Usage{
			MS:     v.billedMS[k],
			Renter: money.Nano(v.renter[k]),
			Host:   money.Nano(v.host[k]),
			Fee:    money.Nano(v.renter[k] - v.host[k]),
		}
		if m.Usage[k] != want {
			return fmt.Errorf("usage of rank %d is %+v, want %+v", k, m.Usage[k], want)
		}
		u, p := v.undecided[k], v.platform[k]
		wantRelief := fairness.ReliefAmount{
			UndecidedMS: u.ms, UndecidedDue: money.Nano(u.due), UndecidedPaid: money.Nano(u.paid),
			PlatformMS: p.ms, PlatformDue: money.Nano(p.due), PlatformPaid: money.Nano(p.paid),
		}
		if m.Relief[k] != wantRelief {
			return fmt.Errorf("relief of rank %d is %+v, want %+v", k, m.Relief[k], wantRelief)
		}
	}
	var want []fairness.Standby
	for _, key := range slices.SortedFunc(maps.Keys(v.owed), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		d := v.owed[key]
		host := millionths(d.paid, g.ranks[key[0]].ppm)
		want = append(want, fairness.Standby{
			Victim:  key[0],
			Culprit: key[1],
			MS:      d.ms,
			Due:     money.Nano(d.due),
			Paid:    money.Nano(d.paid),
			Host:    money.Nano(host),
			Fee:     money.Nano(d.paid - host),
		})
	}
	if !slices.Equal(m.Standby, want) {
		return fmt.Errorf("standby is %+v, want %+v", m.Standby, want)
	}
	return nil
}

// compareVerdict compares one run millisecond by millisecond.
func (g gang) compareVerdict(r fairness.Run, v gangVerdict) error {
	for _, s := range r.Suspensions {
		if s.Len() <= 0 || s.Class.Blames() != (len(s.Culprits) > 0) {
			return fmt.Errorf("suspension %+v is malformed", s)
		}
		for at := s.Start; at < s.End; at++ {
			t := int(at - g.from)
			var culprits []int // as ranks of the gang
			for _, c := range s.Culprits {
				culprits = append(culprits, r.Ranks[c].Lease)
			}
			if v.class[t] != string(s.Class) || !slices.Equal(v.culprits[t], culprits) {
				return fmt.Errorf("at %d: %s of %v, want %q of %v", t, s.Class, culprits, v.class[t], v.culprits[t])
			}
		}
	}
	suspended := r.Facts.Run.Len()
	for _, s := range r.Suspensions {
		suspended -= s.Len()
	}
	if suspended != r.Billable.Len() {
		return fmt.Errorf("suspensions and billable time do not divide the run: %+v", r.Verdict)
	}
	for at := r.Facts.Run.Start; at < r.Facts.Run.End; at++ {
		if t := int(at - g.from); r.Billable.Contains(at) != v.billable[t] {
			return fmt.Errorf("at %d: billable %v, want %v", t, !v.billable[t], v.billable[t])
		}
	}
	return nil
}

// invariants checks what must hold of every gang (see the package comment of internal/billing/fairness).
func (g gang) invariants(v gangVerdict, honest int) error {
	debits := int64(0)
	for k := range g.ranks {
		debits += v.debit[k]
		if v.debit[k] > g.ranks[k].bond {
			return fmt.Errorf("I6: rank %d pays %d of a bond of %d", k, v.debit[k], g.ranks[k].bond)
		}
	}
	if v.renters+debits+v.relief != v.hosts+v.fees {
		return fmt.Errorf("I3: %d + %d + %d paid, %d + %d earned", v.renters, debits, v.relief, v.hosts, v.fees)
	}
	if fee := int64(g.usageFee(v)); v.relief > millionths(fee, g.forAll) || g.fee == nil && v.relief > v.fees {
		return fmt.Errorf("I4: relief of %d from a fee of %d", v.relief, fee)
	}
	if v.debit[honest] != 0 {
		return fmt.Errorf("I5: the honest rank pays %d", v.debit[honest])
	}
	for t := range g.ticks {
		if slices.Contains(v.culprits[t], honest) {
			return fmt.Errorf("I5: the honest rank is to blame at %d", t)
		}
		if g.gap[t] && len(v.culprits[t]) > 0 {
			return fmt.Errorf("I9: %v are to blame at %d, when the platform was deaf", v.culprits[t], t)
		}
		if v.billable[t] && (len(v.down[t]) > 0 || g.written[t]) {
			return fmt.Errorf("I1: billed at %d with pairs down", t)
		}
		for k, r := range g.ranks {
			if v.billable[t] && r.required[t] && !v.up[t][k] {
				return fmt.Errorf("I1: billed at %d while rank %d was not up", t, k)
			}
		}
	}
	return g.invariantsOfHosts(v, honest)
}

func (g gang) invariantsOfHosts(v gangVerdict, honest int) error {
	short := int64(0)           // of what the honest rank is due from hosts with bonds that cannot be exhausted
	worth := v.billedMS[honest] // its time that is paid at its full rate
	paid := v.renter[honest]
	for pair, d := range v.owed {
		if pair[0] == honest && g.ranks[pair[1]].bond == plenty {
			short += d.due - d.paid
			worth, paid = worth+d.ms, paid+d.paid
		}
	}
	if short != 0 {
		return fmt.Errorf("I7: culprits with bonds leave %d unpaid", short)
	}
	if h := g.ranks[honest]; h.rate == h.standby && paid < nanoFor(h.rate, worth)-int64(len(g.ranks)) {
		return fmt.Errorf("I11: %d ms of an honest rank's work cost its users %d", worth, paid)
	}
	for k, r := range g.ranks {
		signed := int64(0)
		for t := range g.ticks {
			if r.signed[t] && r.required[t] {
				signed++
			}
		}
		got := v.renter[k] + v.undecided[k].paid + v.platform[k].paid
		for pair, d := range v.owed {
			if pair[0] == k {
				got += d.paid
			}
		}
		if got > nanoFor(r.rate, signed) {
			return fmt.Errorf("I10: rank %d gets %d for time that is worth %d", k, got, nanoFor(r.rate, signed))
		}
	}
	return nil
}

// moreProof is the second half of I2: proof that is added never takes billed time away.
func (g gang) moreProof(rnd *rand.Rand, v gangVerdict, _ int) error {
	more := g.clone()
	k := rnd.IntN(len(g.ranks))
	r := &more.ranks[k]
	if rnd.IntN(2) == 0 {
		r.attested = either(r.attested, g.bits(rnd, .5))
	} else {
		r.signed = either(r.signed, g.bits(rnd, .5))
	}
	w := more.judge()
	for t := range g.ticks {
		if v.billable[t] && !w.billable[t] {
			return fmt.Errorf("I2: more proof of rank %d takes away what was billed at %d", k, t)
		}
	}
	return more.compare(rnd, w)
}

// oneVoice is I8: where all are attested and report in time, what one rank says of the others changes nothing.
func (g gang) oneVoice(rnd *rand.Rand, _ gangVerdict, honest int) error {
	quiet := g.clone()
	for k := range quiet.ranks {
		r := &quiet.ranks[k]
		r.attested, r.silent, r.deaf = quiet.bits(rnd, 1), quiet.bits(rnd, 0), nil
	}
	liar := quiet.clone()
	k := rnd.IntN(len(g.ranks))
	liar.ranks[k].deaf = map[int]bits{}
	for j := range g.ranks {
		if j != k {
			liar.ranks[k].deaf[j] = g.bits(rnd, .9)
		}
	}
	before, after := quiet.judge(), liar.judge()
	if !slices.Equal(before.renter, after.renter) || !slices.Equal(before.debit, after.debit) ||
		!slices.Equal(before.class, after.class) {
		return fmt.Errorf("I8: the word of rank %d changes the bill from %v to %v, debits from %v to %v", k, before.renter,
			after.renter, before.debit, after.debit)
	}
	return liar.compare(rnd, after)
}

// outage is I12: hosts that were well while the platform received nothing, and prove it later, are billed as if it had
// received everything.
func (g gang) outage(rnd *rand.Rand, _ gangVerdict, _ int) error {
	received := g.clone()
	received.gap = g.bits(rnd, 0)
	for k := range received.ranks {
		r := &received.ranks[k]
		r.attested, r.silent = r.signed, g.bits(rnd, 0)
	}
	lost := received.clone()
	lost.gap = g.bits(rnd, .3)
	for k := range lost.ranks {
		r := &lost.ranks[k]
		r.attested = slices.Clone(r.attested)
		r.silent = slices.Clone(r.silent)
		for t, gap := range lost.gap {
			r.attested[t], r.silent[t] = r.attested[t] && !gap, gap
		}
	}
	before, after := received.judge(), lost.judge()
	for t := range g.ticks {
		if before.billable[t] && !after.billable[t] {
			return fmt.Errorf("I12: not billed at %d, because the platform was deaf", t)
		}
	}
	for k := range g.ranks {
		if after.debit[k] > before.debit[k] {
			return fmt.Errorf("I12: rank %d pays %d because the platform was deaf, %d otherwise", k, after.debit[k],
				before.debit[k])
		}
	}
	return lost.compare(rnd, after)
}

func either(a, b bits) bits {
	out := make(bits, len(a))
	for t := range out {
		out[t] = a[t] || b[t]
	}
	return out
}
