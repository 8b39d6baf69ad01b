package model

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
)

// envTables makes the simulations print their tables, and play longer.
const envTables = "MUSTER_PROOF_TABLES"

const (
	dearRate  = money.Micro(20_000_000) // an honest node, per hour
	cheapRate = money.Micro(300_000)    // an attacker's
	hostPPM   = 850_000
	second    = int64(1000)
	minute    = 60 * second
	hour      = 60 * minute
	startTime = 30 * second // claim to start, with everything cached
)

// rules are the ones that are compared: those before internal/billing/fairness, and its own.
type rules struct {
	name  string
	final bool
	goTimeout, replaceWait,
	lossGrace int64
}

var (
	before = rules{"before", false, 90 * second, 10 * minute, 90 * second}
	after  = rules{"after", true, ms(fairness.GoTimeout), finalTimers.replaceWait, finalTimers.lossGrace}
)

// attackWorld is one attacker, who is the renter and owns cheap hosts, against one honest node, hour after hour.
type attackWorld struct {
	rules
	price   money.Micro // of the honest node
	now     int64
	honest  id.Org
	hosts   []attackHost
	stalled int64 // ms for which the honest node worked on a job that did not go on

	value, rent, debit, earned, credit money.Nano // of the attacker's side
	due, got                           money.Nano // of the honest host: its share of its signed time
	relief, fee                        money.Nano // of the platform
	honestPays                         money.Nano // the honest node's bond and returned credits
}

type attackHost struct {
	org     id.Org
	locked  int64 // relisted at
	strikes []fairness.Strike
	doubts  []int64
	banned  int64 // the pair with the honest operator
}

func newAttackWorld(r rules, hosts int) *attackWorld {
	w := &attackWorld{rules: r, price: dearRate, now: hour, honest: id.New[id.Org]()}
	for range hosts {
		w.hosts = append(w.hosts, attackHost{org: id.New[id.Org]()})
	}
	return w
}

// free returns a host that may be placed with the honest one now, waiting until there is one.
func (w *attackWorld) free(until int64) *attackHost {
	for ; w.now < until; w.now += minute {
		for k := range w.hosts {
			h := &w.hosts[k]
			if !w.final || w.now >= max(h.locked, fairness.GangBan(h.strikes), h.banned) {
				return h
			}
		}
	}
	return nil
}

// story is a run of the honest node, rank 0, with the attacker's hosts from now on, in which all are well.
func (w *attackWorld) story(length int64, hosts ...*attackHost) *story {
	s := &story{Facts: fairness.Facts{Run: interval.Span{Start: w.now, End: w.now + length}}}
	s.leases = append(s.leases, fairness.Lease{Operator: w.honest, Rate: w.price, StandbyRate: w.price, SharePPM: hostPPM})
	for _, h := range hosts {
		s.leases = append(s.leases, fairness.Lease{
			Operator:    h.org,
			Rate:        cheapRate,
			StandbyRate: cheapRate,
			SharePPM:    hostPPM,
		})
	}
	all := interval.Of(s.Run)
	for k := range s.leases {
		if w.final {
			s.leases[k].Bond = fairness.Bond(s.leases, k, fairness.BondTime)
		}
		s.Ranks = append(s.Ranks, fairness.Rank{Lease: k, Signed: all, Attested: all, Deaf: map[int]interval.Set{}})
		s.unwell = append(s.unwell, nil)
		s.doubts = append(s.doubts, nil)
		if k > 0 {
			s.doubts[k] = hosts[k-1].doubts
		}
	}
	return s
}

// bad takes a rank down for a stretch of the run: its host reports that, or falls silent.
func (s *story) bad(k int, reported bool, from, to int64) {
	gone := interval.Of(interval.Span{Start: s.Run.Start + from, End: s.Run.Start + to})
	r := &s.Ranks[k]
	r.Signed, r.Attested = r.Signed.Minus(gone), r.Attested.Minus(gone)
	if reported {
		s.unwell[k] = s.unwell[k].Union(gone)
	} else {
		r.Silent = r.Silent.Union(gone)
	}
}

// play ends the story by the rules, settles it and moves the clock to its end.
func (w *attackWorld) play(s *story, hosts ...*attackHost) ending {
	e := ending{s.Run.End, noEnd}
	if w.final {
		e = finalTimers.end(s)
	} else {
		s.Run.End = w.endBefore(s)
	}
	for k, h := range hosts {
		h.doubts = s.doubts[k+1]
		switch e.rank {
		case k + 1:
			h.locked, h.strikes = e.at+ms(fairness.RelistLock), append(h.strikes, fairness.Strike{AtMS: e.at})
		case undecidedEnd:
			h.banned, h.strikes = e.at+ms(fairness.PairBan), append(h.strikes, fairness.Strike{AtMS: e.at, Against: w.honest})
		}
	}
	w.settle(s)
	w.now = s.Run.End
	return e
}

// endBefore is when a rank was lost by the old rules: bad for longer than LossGrace, after LostAfter if it was silent.
func (w *attackWorld) endBefore(s *story) int64 {
	for k := range s.Ranks {
		for _, d := range finalTimers.doubtsOf(s, k) {
			if d.Len() > w.lossGrace {
				return d.Start + w.lossGrace
			}
		}
	}
	return s.Run.End
}

// settle adds what a run comes to.
func (w *attackWorld) settle(s *story) fairness.Money {
	v := fairness.Decide(s.Facts)
	caps := fairness.DefaultRelief
	if !w.final {
		caps = fairness.Relief{}
	}
	runs := []fairness.Run{{Facts: s.Facts, Verdict: v}}
	fee := money.Nano(0)
	for _, u := range fairness.Pay(s.leases, runs, 0, caps).Usage {
		fee += u.Fee
	}
	m := fairness.Pay(s.leases, runs, fee, caps)
	signed := money.CostOf(s.leases[0].Rate, s.Ranks[0].Signed.Clip(s.Run).Len())
	w.value += signed
	w.due += money.Share(signed, hostPPM)
	for k, u := range m.Usage {
		w.rent, w.fee = w.rent+u.Renter, w.fee+u.Fee
		w.pay(k, u.Host+m.Relief[k].Paid())
		w.relief += m.Relief[k].Paid()
	}
	for _, d := range m.Standby {
		w.fee += d.Fee
		if d.Culprit == 0 {
			w.honestPays += d.Paid
		} else {
			w.debit += d.Paid
		}
		w.pay(d.Victim, d.Host)
	}
	for _, x := range v.Suspensions {
		w.stalled += x.Len()
	}
	return m
}

func (w *attackWorld) pay(lease int, n money.Nano) {
	if lease == 0 {
		w.got += n
	} else {
		w.earned += n
	}
}

// profit is what the attacker's side gains: the honest node's work, less all that it pays.
func (w *attackWorld) profit() money.Nano { return w.value + w.earned + w.credit - w.rent - w.debit }

// attack is one script: it plays runs until the moment it is given.
type attack struct {
	name  string
	hosts int
	play  func(w *attackWorld, until int64)
	// most is the highest profit per hour after the change, in units; unpaid the highest unpaid share of the honest host,
	// in millionths.
	most   float64
	unpaid int64
}

var attacks = []attack{
	{"never started", 5, neverStarted, 0, 0},
	{"flap: 70 s bad, 4 s good", 5, repeat(func(s *story, from int64) int64 {
		s.bad(1, true, from+4*second, from+74*second)
		return from + 74*second
	}), 0, 0},
	{"silent for 124 s, 2 s good", 5, repeat(func(s *story, from int64) int64 {
		s.bad(1, false, from+2*second, from+126*second)
		return from + 126*second
	}), 0, 0},
	{"own host dies under replace", 5, diesUnderReplace, 0, 0},
	{"one voice, hourly", 1, voices(1, false), .25, 0},
	{"two voices against one, hourly", 2, voices(2, true), .30, 0},
	{"overlay dropped in a young run", 5, youngRuns, .05, 1_000_000},
	{"proof of our outage withheld", 1, withheld, 0, 0},
	{"grace period of 60 s", 1, graces, 0, 0},
	{"induced host fault, hourly credit", 1, induced, .40, 21_000},
}

// neverStarted lets the honest node start while the attacker's host does not.
func neverStarted(w *attackWorld, until int64) {
	for h := w.free(until); h != nil; h = w.free(until) {
		s := w.story(w.goTimeout, h)
		b, _ := fairness.Begin([]int64{w.now, 0})
		s.Run.Start = b.FromMS
		s.Ranks[1].Signed, s.Ranks[1].Attested = nil, nil
		w.settle(s)
		h.strikes = append(h.strikes, fairness.Strike{AtMS: s.Run.End})
		w.now = s.Run.End + startTime
	}
}

// repeat plays runs in which the attacker's host is bad again and again.
func repeat(bad func(s *story, from int64) int64) func(*attackWorld, int64) {
	return func(w *attackWorld, until int64) {
		for h := w.free(until); h != nil; h = w.free(until) {
			s := w.story(2*hour, h)
			for at := int64(0); at+200*second < s.Run.Len(); {
				at = bad(s, at)
			}
			w.play(s, h)
			w.now += startTime
		}
	}
}

// diesUnderReplace kills the attacker's host; the honest node is kept for a replacement.
func diesUnderReplace(w *attackWorld, until int64) {
	for h := w.free(until); h != nil; h = w.free(until) {
		s := w.story(hour, h)
		s.bad(1, false, 10*second, hour)
		w.play(s, h)
		wait := w.story(w.replaceWait, h) // reserved: it works by the old rules, it is stopped by the new ones
		wait.Ranks[1].Signed, wait.Ranks[1].Attested = nil, nil
		if w.final {
			wait.leases[1].Bond -= min(wait.leases[1].Bond, money.CostOf(w.price, 125*second))
			w.value -= money.CostOf(w.price, w.replaceWait)
		}
		w.settle(wait)
		w.now += w.replaceWait + startTime
	}
}

// voices lets n hosts of the attacker claim, after an hour, that they receive nothing from the honest node; the node
// receives nothing from them either if they drop their packets. The pair ban is ignored: each hour has another victim.
func voices(n int, drop bool) func(*attackWorld, int64) {
	return func(w *attackWorld, until int64) {
		for w.now < until {
			var hosts []*attackHost
			for k := range n {
				w.hosts[k].banned, w.hosts[k].strikes = 0, nil
				hosts = append(hosts, &w.hosts[k])
			}
			s := w.story(hour+10*minute, hosts...)
			from := interval.Of(interval.Span{Start: s.Run.Start + hour, End: s.Run.End})
			for k := 1; k <= n; k++ {
				s.Ranks[k].Deaf[0] = from
				if drop {
					s.Ranks[0].Deaf[k] = from
				}
			}
			if !w.final { // one word was enough: the accused host is lost, and pays the renter's hour
				s.Run.End = s.Run.Start + hour + w.lossGrace
				m := w.settle(s)
				w.refund(money.CostOf(w.price, min(hour, m.Usage[0].MS)))
				w.now = s.Run.End + startTime
				continue
			}
			w.play(s, hosts...)
			w.now += startTime
		}
	}
}

// refund gives the attacker, as renter, a credit for the honest host's lease.
func (w *attackWorld) refund(n money.Nano) {
	w.credit += n
	w.got -= money.Share(n, hostPPM)
	w.fee -= n - money.Share(n, hostPPM)
}

// youngRuns drops the overlay 10 s after each start.
func youngRuns(w *attackWorld, until int64) {
	for h := w.free(until); h != nil; h = w.free(until) {
		s := w.story(10*second+52*second, h)
		from := interval.Of(interval.Span{Start: s.Run.Start + 10*second, End: s.Run.End})
		s.Ranks[0].Deaf[1], s.Ranks[1].Deaf[0] = from, from
		w.play(s, h)
		w.now += startTime
	}
}

// withheld never proves the attacker's rank for the 8 minutes of each hour in which the platform is deaf.
func withheld(w *attackWorld, until int64) {
	for w.now < until {
		s := w.story(hour, &w.hosts[0])
		gap := interval.Of(interval.Span{Start: s.Run.Start + 10*minute, End: s.Run.Start + 18*minute})
		s.Ranks[0].Attested, s.Ranks[1].Attested, s.Ranks[1].Signed = s.Ranks[0].Attested.Minus(gap),
			s.Ranks[1].Attested.Minus(gap), s.Ranks[1].Signed.Minus(gap)
		if w.final {
			s.Gaps = gap
		}
		w.play(s, &w.hosts[0])
	}
}

// graces stops each run after a second and computes through the grace period.
func graces(w *attackWorld, until int64) {
	const grace = time.Minute
	for w.now < until {
		s := w.story(second, &w.hosts[0])
		w.play(s, &w.hosts[0])
		l := s.leases[0]
		tail := fairness.Tail(interval.Of(interval.Span{Start: w.now, End: w.now + ms(grace)}), w.now, grace)
		work := money.CostOf(l.Rate, tail.Len())
		w.value, w.due = w.value+work, w.due+money.Share(work, hostPPM)
		if w.final {
			w.rent, w.got, w.fee = w.rent+work, w.got+money.Share(work, hostPPM), w.fee+work-money.Share(work, hostPPM)
		}
		w.now += ms(grace) + startTime
	}
}

// induced makes the honest host fail after each hour and asks for the hour's credit. Each hour has another victim, so
// only the cap holds. It is played as if the last 30 days had been like this.
func induced(w *attackWorld, until int64) {
	for w.now < until {
		s := w.story(hour, &w.hosts[0])
		rent := w.rent
		m := w.settle(s)
		l := fairness.Loss{
			Lost: 0,
			Ended: fairness.Suspension{
				Span:     interval.Span{Start: s.Run.End, End: s.Run.End + 125*second},
				Class:    fairness.Silence,
				Culprits: []int{0},
			},
			Inducible:   true,
			LastHour:    m.Usage[0].Renter,
			Posted:      m.Usage[0].Renter,
			Charged30d:  w.rent,
			Credited30d: w.credit,
		}
		credit := l.LastHour
		if w.final {
			// In the steady state of 30 days the caps of all hours are used up at the rate of the charges.
			l.Charged30d, l.Credited30d = 720*(w.rent-rent), 719*money.Share(w.rent-rent, fairness.CreditPPM)
			credit, _ = fairness.Credit(l)
		}
		w.refund(credit)
		w.now += hour + startTime
	}
}

// TestAttacksDoNotPay plays the attacks on a gang by the rules before and after internal/billing/fairness. With
// MUSTER_PROOF_TABLES=1 -v it prints the table of docs/evidence/proof.md.
func TestAttacksDoNotPay(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	for _, a := range attacks {
		fmt.Fprintf(&table, "| %s |", a.name)
		for _, r := range []rules{before, after} {
			w := newAttackWorld(r, a.hosts)
			const hours = 24
			a.play(w, w.now+hours*hour)
			unpaid := int64((w.due - w.got) * 1_000_000 / max(1, w.due))
			fmt.Fprintf(&table, " %.2f / %.1f %% / %.2f |", units(w.profit(), hours), float64(unpaid)/10_000,
				units(w.relief, hours))
			if !r.final {
				continue
			}
			if p := units(w.profit(), hours); p > a.most {
				t.Errorf("%s: the attacker gains %.3f an hour, at most %.3f was expected", a.name, p, a.most)
			}
			if unpaid > a.unpaid {
				t.Errorf("%s: %d ppm of the honest host's time are unpaid", a.name, unpaid)
			}
			if w.relief > w.fee || w.honestPays > 0 {
				t.Errorf("%s: relief %s of fees of %s, the honest host pays %s", a.name, w.relief, w.fee, w.honestPays)
			}
		}
		table.WriteByte('\n')
	}
	if os.Getenv(envTables) != "" {
		t.Logf("attacker's profit per hour / honest host's unpaid share / relief per hour, before and after\n%s",
			table.String())
	}
}

// TestASelfDealerLoses lets renter, flapping host and "honest" host be one person, at any price.
func TestASelfDealerLoses(t *testing.T) {
	t.Parallel()
	for _, price := range []money.Micro{20_000_000, 160_000_000, 1_000_000_000} {
		w := newAttackWorld(after, 5)
		w.price = price
		attacks[1].play(w, w.now+24*hour)
		net := w.got + w.earned - w.rent - w.debit
		if net >= 0 {
			t.Errorf("at %s an hour the self-dealer takes %s out of the platform", price, net)
		}
		if os.Getenv(envTables) != "" {
			t.Logf("self-dealer at %s: %.2f an hour", price, units(net, 24))
		}
	}
}

// TestSabotageIsPaidByTheSaboteur rents an honest node together with a hostile one for an honest renter.
func TestSabotageIsPaidByTheSaboteur(t *testing.T) {
	t.Parallel()
	w := newAttackWorld(after, 1)
	attacks[1].play(w, w.now+24*hour)
	if w.due-w.got > 1000 || w.relief != 0 { // a nano-unit is lost at each rounding
		t.Errorf("the honest host is short of %s, relief is %s", w.due-w.got, w.relief)
	}
	if max := 283 * second * 24; w.stalled > max {
		t.Errorf("the job stood still for %d s in a day", w.stalled/second)
	}
	if os.Getenv(envTables) != "" {
		t.Logf("sabotage: culprit pays %.2f an hour, %d s stalled an hour", units(w.debit, 24), w.stalled/second/24)
	}
}

// TestReliefIsNotCreditedToo lets one person be renter and both operators: a run ends undecided, so that relief is
// paid; then the dear host is reclaimed, which credits the renter with what it was charged. Without fairness.FeeBack
// the same fee would leave the platform twice.
func TestReliefIsNotCreditedToo(t *testing.T) {
	t.Parallel()
	w := newAttackWorld(after, 1)
	w.price = 1_000_000_000
	s := w.story(3*minute, &w.hosts[0])
	apart := interval.Of(interval.Span{Start: s.Run.Start + 102*second, End: s.Run.End})
	s.Ranks[0].Deaf[1], s.Ranks[1].Deaf[0] = apart, apart
	if e := w.play(s, &w.hosts[0]); e.rank != undecidedEnd || w.relief == 0 {
		t.Fatalf("the run ended as %+v, relief %s", e, w.relief)
	}
	dear := fairness.Pay(s.leases, []fairness.Run{{
		Facts:   s.Facts,
		Verdict: fairness.Decide(s.Facts),
	}}, 0, fairness.DefaultRelief).Usage[0]
	credit, _ := fairness.Credit(fairness.Loss{
		Ended: fairness.Suspension{
			Span:     interval.Span{Start: w.now, End: w.now + minute},
			Class:    fairness.Proof,
			Culprits: []int{0},
		},
		LastHour: dear.Renter,
		Posted:   dear.Renter,
	})
	part := credit - money.Share(credit, hostPPM)
	if w.relief+part <= w.fee {
		t.Fatalf("relief %s and the fee on the credit %s are not more than the fee %s: the test proves nothing", w.relief,
			part, w.fee)
	}
	if gain := w.relief + fairness.FeeBack(part, w.fee, w.relief) - w.fee; gain > 0 {
		t.Errorf("the platform loses %s", gain)
	}
	if os.Getenv(envTables) != "" {
		t.Logf("relief and credit: fee %s, relief %s, part of the credit %s", w.fee, w.relief, part)
	}
}
