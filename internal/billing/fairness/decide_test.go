package fairness

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
)

func span(from, to int64) interval.Span { return interval.Span{Start: from, End: to} }

func set(v ...int64) interval.Set { return interval.FromFlat(v) }

func suspension(from, to int64, c Class, culprits ...int) Suspension {
	return Suspension{Span: span(from, to), Class: c, Culprits: culprits}
}

// TestDecide looks at each clause of the rule alone, in a run of 100 s with ranks that are healthy except as stated.
func TestDecide(t *testing.T) {
	t.Parallel()
	all := set(0, 100)
	well := func(n int) Facts {
		f := Facts{Run: span(0, 100)}
		for k := range n {
			f.Ranks = append(f.Ranks, Rank{Lease: k, Signed: all, Attested: all, Deaf: map[int]interval.Set{}})
		}
		return f
	}
	for name, c := range map[string]struct {
		ranks    int
		change   func(f *Facts)
		billable interval.Set
		rest     []Suspension
	}{
		"all well":  {2, func(*Facts) {}, all, nil},
		"one voice": {2, func(f *Facts) { f.Ranks[0].Deaf[1] = all }, all, nil},
		"two voices, both well": {2, func(f *Facts) {
			f.Ranks[0].Deaf[1], f.Ranks[1].Deaf[0] = set(10, 30), set(20, 40)
		}, set(0, 20, 30, 100), []Suspension{suspension(20, 30, Undecided)}},
		"one voice, and the other end was silent": {2, func(f *Facts) {
			f.Ranks[0].Deaf[1], f.Ranks[1].Silent = set(10, 30), set(20, 40)
		}, set(0, 20, 30, 100), []Suspension{suspension(20, 30, Silence, 1)}},
		"one voice, and the other end was silent, partly in a gap": {2, func(f *Facts) {
			f.Ranks[0].Deaf[1], f.Ranks[1].Silent, f.Gaps = set(10, 30), all, set(0, 20)
		}, set(0, 20, 30, 100), []Suspension{suspension(20, 30, Silence, 1)}},
		"silent alone is billed when it is proven": {2, func(f *Facts) { f.Ranks[1].Silent, f.Ranks[1].Attested = all, nil },
			all, nil},
		"not signed, but attested": {2, func(f *Facts) { f.Ranks[1].Signed = nil }, all, nil},
		"neither signed nor attested": {2, func(f *Facts) {
			f.Ranks[1].Signed, f.Ranks[1].Attested = set(0, 10, 30, 100), set(0, 15)
		}, set(0, 15, 30, 100), []Suspension{suspension(15, 30, Proof, 1)}},
		"two at once": {3, func(f *Facts) {
			for _, k := range []int{0, 2} {
				f.Ranks[k].Signed, f.Ranks[k].Attested = set(10*int64(k), 100), nil
			}
			f.Ranks[0].Signed = set(10, 100)
		}, set(20, 100), []Suspension{suspension(0, 10, Proof, 0, 2), suspension(10, 20, Proof, 2)}},
		"missing proof goes before silence": {3, func(f *Facts) {
			f.Ranks[2].Signed, f.Ranks[2].Attested = set(50, 100), set(50, 100)
			f.Ranks[0].Deaf[1], f.Ranks[1].Deaf[0], f.Ranks[1].Silent = all, all, all
		}, nil, []Suspension{suspension(0, 50, Proof, 2), suspension(50, 100, Silence, 1)}},
		"in a gap nobody is to blame": {3, func(f *Facts) {
			f.Ranks[2].Signed, f.Ranks[2].Attested = nil, set(40, 100)
			f.Ranks[0].Deaf[1], f.Ranks[1].Deaf[0], f.Ranks[1].Silent = set(60, 70), set(60, 70), all
			f.Ranks[0].Deaf[2], f.Gaps = set(10, 20), set(0, 65)
		}, set(0, 10, 20, 60, 70, 100), []Suspension{suspension(10, 20, Platform), suspension(60, 65, Platform),
			suspension(65, 70, Silence, 1)}},
		"vouching takes all peers": {3, func(f *Facts) {
			f.Ranks[2].Signed, f.Ranks[2].Attested, f.Ranks[1].Signed, f.Gaps = nil, nil, set(0, 30), all
		}, set(0, 30), []Suspension{suspension(30, 100, Platform)}},
		"the relay clears one voice": {2, func(f *Facts) {
			f.Ranks[0].Deaf[1], f.Ranks[1].Silent = all, all
			f.Carried = map[Pair]interval.Set{{0, 1}: set(10, 100)}
		}, set(10, 100), []Suspension{suspension(0, 10, Silence, 1)}},
		"the relay does not clear two voices": {2, func(f *Facts) {
			f.Ranks[0].Deaf[1], f.Ranks[1].Deaf[0] = set(0, 10), set(0, 10)
			f.Carried = map[Pair]interval.Set{{0, 1}: all}
		}, set(10, 100), []Suspension{suspension(0, 10, Undecided)}},
		"the relay blames the end that it did not hear": {2, func(f *Facts) {
			f.Ranks[0].Deaf[1], f.Ranks[1].Deaf[0], f.Ranks[0].RelaySilent = set(0, 10), set(0, 10), set(5, 50)
		}, set(10, 100), []Suspension{suspension(0, 5, Undecided), suspension(5, 10, Silence, 0)}},
		"an undecided suspension that was written": {2, func(f *Facts) { f.Undecided = set(90, 200) }, set(0, 90),
			[]Suspension{suspension(90, 100, Undecided)}},
		"a single node in a gap": {1, func(f *Facts) { f.Ranks[0].Attested, f.Gaps = nil, set(10, 20) }, all, nil},
	} {
		f := well(c.ranks)
		c.change(&f)
		v := Decide(f)
		if diff := cmp.Diff(Verdict{Billable: c.billable, Suspensions: c.rest}, v); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestPay follows a bond and the two caps of relief to the nano-unit where they run out.
func TestPay(t *testing.T) {
	t.Parallel()
	a, b, c := id.New[id.Org](), id.New[id.Org](), id.New[id.Org]()
	const micro = 3_600_000 // 1000 nano a millisecond
	leases := []Lease{
		{Operator: a, Rate: micro, StandbyRate: micro, SharePPM: 850_000},
		{Operator: b, Rate: 2 * micro, StandbyRate: 2 * micro, SharePPM: 850_000},
		{Operator: c, Rate: micro, StandbyRate: micro, SharePPM: 850_000, Bond: 4_500},
		{Operator: c, Rate: micro, StandbyRate: micro, SharePPM: 850_000},
	}
	all := set(0, 100)
	run := Run{Facts: Facts{Run: span(0, 100)}, Verdict: Verdict{Billable: set(50, 100), Suspensions: []Suspension{
		suspension(0, 10, Proof, 2), suspension(10, 20, Undecided), suspension(20, 50, Platform),
	}}}
	for k := range leases {
		run.Ranks = append(run.Ranks, Rank{Lease: k, Signed: all})
	}
	run.Ranks[1].Signed = set(1, 100)
	m := Pay(leases, []Run{run}, 60_000, DefaultRelief)
	want := []Standby{ // the bond pays 1000 + 3000, then 500 to the first
		{Victim: 0, Culprit: 2, MS: 10, Due: 10_000, Paid: 2_500, Host: 2_125, Fee: 375},
		{Victim: 1, Culprit: 2, MS: 9, Due: 18_000, Paid: 2_000, Host: 1_700, Fee: 300},
	}
	if diff := cmp.Diff(want, m.Standby); diff != "" {
		t.Error(diff)
	}
	// 5 × 850 a millisecond: the first cap is reached after 7 undecided ones and 250 more, the second one 7 ms later.
	wantRelief := []ReliefAmount{
		{
			UndecidedMS:   10,
			PlatformMS:    30,
			UndecidedDue:  8_500,
			PlatformDue:   25_500,
			UndecidedPaid: 7*850 + 250,
			PlatformPaid:  7*850 + 250,
		},
		{
			UndecidedMS:   10,
			PlatformMS:    30,
			UndecidedDue:  17_000,
			PlatformDue:   51_000,
			UndecidedPaid: 7 * 1700,
			PlatformPaid:  7 * 1700,
		},
		{
			UndecidedMS:   10,
			PlatformMS:    30,
			UndecidedDue:  8_500,
			PlatformDue:   25_500,
			UndecidedPaid: 7 * 850,
			PlatformPaid:  7 * 850,
		},
		{
			UndecidedMS:   10,
			PlatformMS:    30,
			UndecidedDue:  8_500,
			PlatformDue:   25_500,
			UndecidedPaid: 7 * 850,
			PlatformPaid:  7 * 850,
		},
	}
	if diff := cmp.Diff(wantRelief, m.Relief); diff != "" {
		t.Error(diff)
	}
	if want := (Usage{MS: 50, Renter: 100_000, Host: 85_000, Fee: 15_000}); m.Usage[1] != want {
		t.Errorf("usage %+v, want %+v", m.Usage[1], want)
	}
}

func TestBonds(t *testing.T) {
	t.Parallel()
	a, b := id.New[id.Org](), id.New[id.Org]()
	leases := []Lease{{
		Operator:    a,
		StandbyRate: 20_000_000,
	}, {Operator: b, StandbyRate: 300_000}, {Operator: b, StandbyRate: 1}}
	if got, want := Bond(leases, 1, BondTime), money.Nano(1_666_666_667); got != want {
		t.Errorf("the cheap host's bond is %s, want %s", got, want)
	}
	if got, want := Bond(leases, 0, BondTime), money.Nano(25_000_084); got != want {
		t.Errorf("the dear host's bond is %s, want %s", got, want)
	}
	if got := Bond(leases[1:], 0, BondTime); got != 0 {
		t.Errorf("one operator's gang needs a bond of %s", got)
	}
	eight := Price{Rate: 160_000_000, GPUs: 8}
	for name, c := range map[string]struct {
		own    Price
		median money.Micro
		others []Price
		want   money.Micro
	}{
		"usual":             {eight, 19_000_000, nil, 160_000_000},
		"dear":              {eight, 2_000_000, nil, 32_000_000},
		"no median, usual":  {eight, 0, []Price{{15_000_000, 1}}, 160_000_000},
		"no median, dear":   {eight, 0, []Price{{15_000_000, 1}, {1_000_001, 4}}, 4_000_004},
		"no other operator": {eight, 0, nil, 160_000_000},
	} {
		if got := StandbyRate(c.own, c.median, c.others); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestWatermark(t *testing.T) {
	t.Parallel()
	ranks := []Progress{{ReportedMS: 100_000}, {ReportedMS: 90_000}, {Final: true}}
	if got := Posted(ranks); got != 82_000 {
		t.Errorf("posted through %d", got)
	}
	if got := Posted(ranks[2:]); got != Forever {
		t.Errorf("when all is here, posted through %d", got)
	}
}
