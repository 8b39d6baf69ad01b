package fairness

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
)

func TestBegin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		started []int64
		want    Beginning
	}{
		"together": {[]int64{1000, 6000, 2000}, Beginning{FromMS: 6000, Excused: []interval.Set{nil, nil, nil}}},
		"one is late": {[]int64{1000, 6001, 2000}, Beginning{
			FromMS:  1000,
			Late:    []int{1},
			Excused: []interval.Set{{}, nil, set(1000, 2000)},
		}},
		"one is never": {[]int64{0, 1000}, Beginning{FromMS: 1000, Late: []int{0}, Excused: []interval.Set{nil, {}}}},
	} {
		got, ok := Begin(c.started)
		if diff := cmp.Diff(c.want, got); !ok || diff != "" {
			t.Errorf("%s: %v %s", name, ok, diff)
		}
	}
	if _, ok := Begin([]int64{0, 0}); ok {
		t.Error("a run begins without a start")
	}
}

// TestBegin_LateStartPaidByItsHost plays a rank that starts 20 s after the first: its host pays the others' signed
// time, and a rank that was 3 s late with no one waiting for it alone pays nothing.
func TestBegin_LateStartPaidByItsHost(t *testing.T) {
	t.Parallel()
	started := []int64{1000, 4000, 21_000}
	b, _ := Begin(started)
	f := Facts{Run: span(b.FromMS, 60_000)}
	for k, s := range started {
		f.Ranks = append(f.Ranks, Rank{Lease: k, Signed: set(s, 60_000), Attested: b.Excused[k]})
	}
	v := Decide(f)
	want := Verdict{Billable: set(21_000, 60_000), Suspensions: []Suspension{suspension(1000, 21_000, Proof, 2)}}
	if diff := cmp.Diff(want, v); diff != "" {
		t.Fatal(diff)
	}
	leases := []Lease{{
		Operator:    id.New[id.Org](),
		StandbyRate: 3600,
	}, {Operator: id.New[id.Org](), StandbyRate: 3600}, {Operator: id.New[id.Org](), Bond: money.Unit}}
	m := Pay(leases, []Run{{f, v}}, 0, DefaultRelief)
	if len(m.Standby) != 2 || m.Standby[0].MS != 20_000 || m.Standby[1].MS != 17_000 {
		t.Fatalf("standby %+v", m.Standby)
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	if got, want := Tail(set(0, 5000, 8000, 90_000), 4000, 10*time.Second), set(4000, 5000, 8000, 19_000); !cmp.Equal(got,
		want) {
		t.Errorf("tail %v, want %v", got, want)
	}
}

func TestCredit(t *testing.T) {
	t.Parallel()
	const unit = money.Unit
	ended := suspension(700_000, 800_000, Silence, 1)
	base := Loss{Lost: 1, Ended: ended, Inducible: true, LastHour: 20 * unit, Posted: 100 * unit, Charged30d: 400 * unit}
	for name, c := range map[string]struct {
		change     func(*Loss)
		book, hold money.Nano
	}{
		"inducible":                {func(*Loss) {}, 8 * unit, 12 * unit},
		"little spent":             {func(l *Loss) { l.Charged30d = 100 * unit }, 5 * unit, 15 * unit},
		"some credited before":     {func(l *Loss) { l.Credited30d = 7 * unit }, unit, 19 * unit},
		"more credited before":     {func(l *Loss) { l.Credited30d = 9 * unit }, 0, 20 * unit},
		"the pair had one":         {func(l *Loss) { l.PairCredited = true }, 0, 20 * unit},
		"not inducible":            {func(l *Loss) { l.Inducible, l.PairCredited = false, true }, 20 * unit, 0},
		"given back already":       {func(l *Loss) { l.Inducible, l.Corrected = false, 95*unit }, 5 * unit, 0},
		"given back all":           {func(l *Loss) { l.Corrected = 120 * unit }, 0, 0},
		"undecided":                {func(l *Loss) { l.Ended = suspension(700_000, 800_000, Undecided) }, 0, 0},
		"another":                  {func(l *Loss) { l.Lost = 0 }, 0, 0},
		"two":                      {func(l *Loss) { l.Ended.Culprits = []int{0, 1} }, 0, 0},
		"a gap shortly before":     {func(l *Loss) { l.Gaps = set(50_000, 100_001) }, 0, 0},
		"a gap longer before that": {func(l *Loss) { l.Gaps = set(50_000, 100_000) }, 8 * unit, 12 * unit},
	} {
		l := base
		c.change(&l)
		if book, hold := Credit(l); book != c.book || hold != c.hold {
			t.Errorf("%s: %s now and %s held, want %s and %s", name, book, hold, c.book, c.hold)
		}
	}
}

// TestCredit_FeeSpentOnce is I4 with credits: relief and returned fees together are never above the fee, in any order.
func TestCredit_FeeSpentOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ part, fee, relief, want money.Nano }{{30, 45, 0, 30}, {30, 45, 15, 30}, {30, 45, 20, 25},
		{30, 45, 45, 0}, {30, 10, 20, 0}} {
		if got := FeeBack(c.part, c.fee, c.relief); got != c.want {
			t.Errorf("of %d, with a fee of %d and relief of %d: %d, want %d", c.part, c.fee, c.relief, got, c.want)
		}
	}
}

func TestStrikes_DoubtsCountedPerHour(t *testing.T) {
	t.Parallel()
	now := int64(100_000_000)
	for _, c := range []struct {
		ago  []int64
		want bool
	}{{nil, false}, {[]int64{60_000}, false}, {[]int64{60_000, 3_599_999}, true}, {[]int64{60_000, 3_600_000}, false}} {
		var doubts []int64
		for _, a := range c.ago {
			doubts = append(doubts, now-a)
		}
		if got := DoubtIsFinal(doubts, now); got != c.want {
			t.Errorf("doubts %v ms ago: final %v", c.ago, got)
		}
	}
}

func TestStrikes_GangBans(t *testing.T) {
	t.Parallel()
	const hour, week = int64(3_600_000), int64(7 * 24 * 3_600_000)
	a, b, c := id.New[id.Org](), id.New[id.Org](), id.New[id.Org]()
	three := func(at int64) []Strike { return []Strike{{AtMS: at + 2}, {AtMS: at + 1}, {AtMS: at}} }
	var often []Strike
	for k := range int64(12) {
		often = append(often, three(k*hour)...)
	}
	for name, c := range map[string]struct {
		strikes []Strike
		until   int64
	}{
		"none":                        {nil, 0},
		"two failures":                {three(0)[:2], 0},
		"three failures":              {three(0), 2 + hour},
		"three failures, far apart":   {[]Strike{{AtMS: 0}, {AtMS: hour / 2}, {AtMS: hour}}, 0},
		"one opponent":                {[]Strike{{0, a}, {1, a}, {2, a}}, 0},
		"three opponents":             {[]Strike{{0, a}, {1, b}, {2, c}}, 2 + hour},
		"three opponents in two days": {[]Strike{{0, a}, {hour, b}, {24 * hour, c}}, 0},
		"twice":                       {append(three(0), three(5*hour)...), 5*hour + 2 + 2*hour},
		"twice, a clean week between": {append(three(0), three(week+5)...), week + 7 + hour},
		"often":                       {often, 11*hour + 2 + week},
	} {
		if got := GangBan(c.strikes); got != c.until {
			t.Errorf("%s: until %d, want %d", name, got, c.until)
		}
	}
}
