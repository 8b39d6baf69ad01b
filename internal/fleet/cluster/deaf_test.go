package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
)

// deafGang is a gang of two operators whose hosts reported half a minute ago. For 20 s they did not receive from each
// other. That began just before these reports, which did not notice it.
type deafGang struct {
	*gangField
	c       cluster.Cluster
	silence interval.Span
}

func newDeafGang(t *testing.T) *deafGang {
	t.Helper()
	g := &deafGang{gangField: newGangField(t, 2, money.Unit, nil)}
	g.c = g.runUp(spec(2, 1))
	g.ran(g.c, 20*time.Minute)
	g.away(g.c, 30*time.Second, 0, 1)
	now := time.Now().UnixMilli()
	g.silence = interval.Span{Start: now - 33_000, End: now - 13_000}
	g.tick(g.c)
	return g
}

// deaf lets a rank sign that it received nothing from the other.
func (g *deafGang) deaf(rank int) {
	for _, r := range g.hostOf(g.c, rank).runs {
		r.deaf = map[int]interval.Span{1 - rank: g.silence}
	}
}

// report has a rank's host report. inTime: the beginning of its silence had been received as soon as it was noticed.
func (g *deafGang) report(rank int, inTime bool) {
	g.t.Helper()
	g.must(g.hostOf(g.c, rank).sync(g.ctx, 0))
	if inTime {
		g.exec(`WITH q AS (SELECT set_config('session_replication_role', 'replica', true))
			UPDATE deaf_span d SET received_at = to_timestamp((d.from_ms + 9000) / 1000.0) FROM q, lease l WHERE l.id =
			d.lease_id AND l.rank = $1`, rank)
	}
}

type suspensionRow struct {
	class    string
	ms       int64
	culprits string // ranks
}

func (g *deafGang) suspensions() (out []suspensionRow) {
	g.t.Helper()
	rows, err := g.d.Pool.Query(g.ctx, `SELECT s.class, s.to_ms - s.from_ms, coalesce((SELECT string_agg(l.rank::text, ','
		ORDER BY l.rank) FROM lease l WHERE l.id = ANY (s.culprits)), '')
		FROM suspension s WHERE s.cluster_id = $1 ORDER BY s.from_ms`, g.c.ID)
	g.must(err)
	defer rows.Close()
	for rows.Next() {
		var r suspensionRow
		g.must(rows.Scan(&r.class, &r.ms, &r.culprits))
		out = append(out, r)
	}
	return out
}

// outcome is what became of the silence, once the cluster is settled.
type outcome struct {
	suspended string
	lost      [2]int64 // signed and not billed, by rank, ms
	bond      [2]money.Nano
	relief    money.Nano
}

func (g *deafGang) outcome(looks int) (o outcome) {
	g.t.Helper()
	before := g.expense()
	for range looks {
		g.tick(g.c)
	}
	if got := g.get(g.c); got.State != lifecycle.Running || !got.Billing {
		g.t.Fatalf("%s, billing %v: %s", got.State, got.Billing, got.Detail)
	}
	g.release(g.c)
	o.suspended = fmt.Sprint(g.suspensions())
	for rank, ms := range g.billed(g.c) {
		var signed int64
		// A report of before the test moved the start into the past covers a moment twice.
		g.must(g.d.Pool.QueryRow(g.ctx, `SELECT sum(upper(u) - lower(u))::bigint FROM unnest((SELECT
			range_agg(int8range(greatest(s.start_ms, w.opened_ms), s.end_ms)) FROM usage_segment s JOIN lease l ON l.id =
			s.lease_id, (SELECT min(opened_ms) AS opened_ms FROM cluster_window) w WHERE l.rank = $1 AND s.end_ms >
			w.opened_ms)) u`, rank).Scan(&signed))
		o.lost[rank] = signed - ms
		operator := g.operators[0]
		if h := g.hostOf(g.c, rank); h == g.hosts[1] {
			operator = g.operators[1]
		}
		o.bond[rank] = g.has(ledger.HostBond(operator.Org, usd)) - g.bond
	}
	o.relief = g.expense() - before
	g.ledger()
	return o
}

// Time in which both ends of a pair signed that they received nothing from each other is not billed, although both were
// up. An end that could not report it in time was itself cut off, and its bond pays the other. If both could, neither
// is to blame and relief pays. The result does not depend on the order of the records, or on whether the watchdog looks
// in between.
func TestMutualDeafnessIsNotBilled(t *testing.T) {
	t.Parallel()
	standby := money.CostOf(price, 20_000)
	for _, tc := range []struct {
		name   string
		inTime [2]bool
		want   func(outcome) bool
	}{
		{"nobody is to blame", [2]bool{true, true}, func(o outcome) bool {
			return o.suspended == "[{undecided 20000 }]" && o.bond == [2]money.Nano{} && o.relief > standby &&
				o.relief < 2*standby
		}},
		{"rank 1 was cut off", [2]bool{true, false}, func(o outcome) bool {
			return o.suspended == "[{silence 20000 1}]" && o.bond == [2]money.Nano{0, -standby} && o.relief == 0
		}},
		{"both were cut off", [2]bool{}, func(o outcome) bool {
			return o.suspended == "[{silence 20000 0,1}]" && o.bond == [2]money.Nano{} && o.relief == 0
		}},
	} {
		for n, order := range [][2]int{{0, 1}, {1, 0}, {0, 1}} {
			looks := []int{2, 2, 0}[n] // none: it ends before anybody looks
			t.Run(fmt.Sprint(tc.name, " ", order, " ", looks), func(t *testing.T) {
				t.Parallel()
				g := newDeafGang(t)
				g.deaf(0)
				g.deaf(1)
				for _, rank := range order {
					g.report(rank, tc.inTime[rank])
					if looks > 0 {
						g.tick(g.c)
					}
				}
				o := g.outcome(looks)
				if !tc.want(o) || o.lost != [2]int64{20_000, 20_000} {
					t.Errorf("%+v", o)
				}
				var late int
				g.must(g.d.Pool.QueryRow(g.ctx, "SELECT count(*) FROM silence WHERE kind = 'late'").Scan(&late))
				if want := map[bool]int{false: 1}; late != want[tc.inTime[0]]+want[tc.inTime[1]] {
					t.Errorf("%d late silences are logged", late)
				}
			})
		}
	}
}

// What one host alone says about another changes no bill, no bond and no relief, in time or late.
func TestOneVoiceChangesNothing(t *testing.T) {
	t.Parallel()
	for _, inTime := range []bool{true, false} {
		t.Run(fmt.Sprint("in time ", inTime), func(t *testing.T) {
			t.Parallel()
			g := newDeafGang(t)
			g.deaf(0)
			for _, rank := range []int{0, 1} {
				g.report(rank, inTime)
				g.tick(g.c)
			}
			if o := g.outcome(2); o != (outcome{suspended: "[]"}) {
				t.Errorf("%+v", o)
			}
		})
	}
}

// Time in doubt is decided only once it is known from whom each rank received nothing in it: a silence that begins in
// its last seconds is signed later.
func TestADoubtIsDecidedOnceSilencesAreKnown(t *testing.T) {
	t.Parallel()
	g := newDeafGang(t)
	g.away(g.c, time.Minute, 1)
	g.tick(g.c)
	if got := g.get(g.c); got.Billing {
		t.Fatalf("%s %s: no doubt", got.State, got.Detail)
	}
	for _, r := range g.hostOf(g.c, 1).runs {
		r.GoodSinceBootMS = 1 // so its report attests the time in which none came
	}
	now := time.Now().UnixMilli()
	for range 2 {
		g.report(0, true)
		g.report(1, true)
		g.tick(g.c)
	}
	g.silence = interval.Span{Start: now - 5000, End: now - 1000}
	g.deaf(0)
	g.deaf(1)
	g.report(0, true)
	g.report(1, true)
	o := g.outcome(2) // we received nothing from rank 1 either until it came back
	if o.suspended != "[{silence 4000 1}]" || o.bond != [2]money.Nano{0, -money.CostOf(price, 4000)} ||
		o.lost != [2]int64{4000, 4000} {
		t.Errorf("%+v", o)
	}
}
