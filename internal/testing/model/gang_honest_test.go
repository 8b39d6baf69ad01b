package model

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
)

// honestWorld adds up gangs of honest hosts: a host is lost once in 1,000 hours, its line is cut for 30 s once a day,
// and the platform is deaf for five minutes once a month, plus the settle-in.
type honestWorld struct {
	ranks, hours                 int
	signed, due, paid            money.Nano // worth of what was signed; the hosts' share of it, before and after the rule
	paidBefore, bonds, relief    money.Nano
	billed, stalledBilled        int64 // ms of W, and of it while the job stood still
	ended, endedPerRun, undecide int   // runs: by the rule, and if doubts were counted per run
}

// hour plays one cluster-hour.
func (w *honestWorld) hour(rnd *rand.Rand, orgs []id.Org) {
	s := &story{
		Facts:  fairness.Facts{Run: interval.Span{Start: hour, End: 2 * hour}},
		unwell: make([]interval.Set, w.ranks),
		doubts: make([][]int64, w.ranks),
	}
	all := interval.Of(s.Run)
	if rnd.IntN(720) == 0 {
		from := s.Run.Start + rnd.Int64N(hour)
		s.Gaps = interval.Of(interval.Span{Start: from, End: from + 7*minute})
	}
	for k := range w.ranks {
		s.leases = append(s.leases, fairness.Lease{
			Operator:    orgs[k],
			Rate:        dearRate,
			StandbyRate: dearRate,
			SharePPM:    hostPPM,
		})
		s.Ranks = append(s.Ranks, fairness.Rank{
			Lease:    k,
			Signed:   all,
			Attested: all.Minus(s.Gaps),
			Deaf:     map[int]interval.Set{},
		})
	}
	var stalled interval.Set
	cuts := 0
	apart := func(k int, gone interval.Set, both bool) { // k and the others receive nothing from each other
		stalled = stalled.Union(gone)
		s.Ranks[k].Silent = s.Ranks[k].Silent.Union(gone)
		for j := range s.Ranks {
			if j == k {
				continue
			}
			s.Ranks[j].Deaf[k] = s.Ranks[j].Deaf[k].Union(gone)
			if both {
				s.Ranks[k].Deaf[j] = s.Ranks[k].Deaf[j].Union(gone)
			}
		}
	}
	for k := range w.ranks {
		s.leases[k].Bond = fairness.Bond(s.leases, k, fairness.BondTime)
		for rnd.IntN(24) == 0 {
			from := s.Run.Start + rnd.Int64N(hour)
			apart(k, interval.Of(interval.Span{Start: from, End: from + 30*second}).Clip(s.Run), true)
			cuts++
		}
		if rnd.IntN(1000) == 0 {
			gone := interval.Of(interval.Span{Start: s.Run.Start + rnd.Int64N(hour), End: s.Run.End})
			s.Ranks[k].Signed, s.Ranks[k].Attested = s.Ranks[k].Signed.Minus(gone), s.Ranks[k].Attested.Minus(gone)
			apart(k, gone, false)
		}
	}
	w.hours++
	switch finalTimers.end(s).rank {
	case noEnd:
		if cuts > fairness.Doubts {
			w.endedPerRun++
		}
	case undecidedEnd:
		w.undecide++
		fallthrough
	default:
		w.ended++
		w.endedPerRun++
	}
	w.settle(s, stalled)
}

func (w *honestWorld) settle(s *story, stalled interval.Set) {
	v := fairness.Decide(s.Facts)
	runs := []fairness.Run{{Facts: s.Facts, Verdict: v}}
	fee := money.Nano(0)
	for _, u := range fairness.Pay(s.leases, runs, 0, fairness.DefaultRelief).Usage {
		fee += u.Fee
	}
	m := fairness.Pay(s.leases, runs, fee, fairness.DefaultRelief)
	for k, u := range m.Usage {
		worth := money.CostOf(dearRate, s.Ranks[k].Signed.Clip(s.Run).Len())
		w.signed, w.due = w.signed+worth, w.due+money.Share(worth, hostPPM)
		w.paidBefore += u.Host
		w.paid += u.Host + m.Relief[k].Paid()
		w.relief += m.Relief[k].Paid()
	}
	for _, d := range m.Standby {
		w.paid, w.bonds = w.paid+d.Host, w.bonds+d.Paid
	}
	// The culprit's own time is its own loss: it is not due.
	for _, x := range v.Suspensions {
		for _, k := range x.Culprits {
			w.due -= money.Share(money.CostOf(dearRate, s.Ranks[k].Signed.Clip(x.Span).Len()), hostPPM)
		}
	}
	w.billed += v.Billable.Len()
	w.stalledBilled += v.Billable.Intersect(stalled).Len()
}

// TestHonestGangsRunOn plays gangs of honest hosts: their time is paid in full, the renter pays for no time in which
// the job stood still, the platform pays almost nothing, and gangs end by lost hosts only, however many ranks they
// have.
func TestHonestGangsRunOn(t *testing.T) {
	t.Parallel()
	orgs := make([]id.Org, 64)
	for k := range orgs {
		orgs[k] = id.New[id.Org]()
	}
	long := os.Getenv(envTables) != ""
	var table strings.Builder
	for _, size := range []struct{ ranks, hours, longHours int }{{2, 3000, 100_000}, {8, 1000, 20_000}, {64, 60, 2000}} {
		w := honestWorld{ranks: size.ranks}
		hours := size.hours
		if long {
			hours = size.longHours
		}
		rnd := rand.New(rand.NewPCG(7, uint64(size.ranks)))
		for range hours {
			w.hour(rnd, orgs)
		}
		nodeHours, clusterHours := float64(w.hours*w.ranks)/1000, float64(w.hours)/1000
		unpaid := func(paid money.Nano) float64 { return max(0, 100*float64(w.due-paid)/float64(w.due)) }
		fmt.Fprintf(&table, "| %d | %.3f / %.3f %% | %.3f %% | %.2f | %.1f | %.1f / %.1f |\n", w.ranks, unpaid(w.paidBefore),
			unpaid(w.paid),
			100*float64(w.stalledBilled)/float64(w.billed), units(w.relief, nodeHours), units(w.bonds, nodeHours),
			float64(w.endedPerRun)/clusterHours, float64(w.ended)/clusterHours)
		if unpaid(w.paid) > 0.001 {
			t.Errorf("%d ranks: %.4f %% of honest hosts' time is unpaid", w.ranks, unpaid(w.paid))
		}
		if w.stalledBilled > 0 {
			t.Errorf("%d ranks: renters pay for %d ms in which their job stood still", w.ranks, w.stalledBilled)
		}
		if w.undecide > 0 {
			t.Errorf("%d ranks: %d runs of honest hosts end undecided", w.ranks, w.undecide)
		}
		if most := 4 + 1.5*float64(w.hours*w.ranks)/1000; float64(w.ended) > most {
			t.Errorf("%d ranks: %d of %d runs end, more than %.0f", w.ranks, w.ended, w.hours, most)
		}
	}
	if long {
		t.Logf("ranks, hosts unpaid before / after, renter overpays, relief and bonds per 1,000 node-hours, runs ended "+
			"per 1,000 cluster hours if counted per run / per host\n%s", table.String())
	}
}
