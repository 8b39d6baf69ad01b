package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/idem"
)

// away moves the last reports of these ranks into the past. Other ranks report nothing about them meanwhile.
func (w *world) away(c cluster.Cluster, by time.Duration, ranks ...int32) {
	w.t.Helper()
	ms := by.Milliseconds()
	w.exec(`UPDATE node_status s SET last_good_ms = last_good_ms - $3, reported_at = reported_at - $3::bigint * interval
		'1 ms'
		FROM node n WHERE n.id = s.node_id AND n.cluster_id = $1 AND n.rank = ANY ($2::integer[])`, c.ID, ranks, ms)
}

// ran lets a cluster have run for that long already, with nothing of it proven yet.
func (w *world) ran(c cluster.Cluster, by time.Duration) {
	w.t.Helper()
	w.age(c, by)
	w.exec(`UPDATE node SET started_at = started_at - $2::bigint * interval '1 ms', since = since - $2::bigint * interval
		'1 ms'
		WHERE cluster_id = $1`, c.ID, by.Milliseconds())
	w.exec("UPDATE lease SET run_until = clock_timestamp() + interval '30 minutes' WHERE cluster_id = $1", c.ID)
	w.exec("UPDATE cluster SET run_until = clock_timestamp() + interval '30 minutes' WHERE id = $1", c.ID)
	for _, h := range w.hosts {
		for ref := range h.runs {
			h.until[ref] = time.Now().Add(30 * time.Minute).UnixMilli()
		}
	}
}

// outage lets the control plane have been deaf since then, and its hosts have time to come back.
func (w *world) outage(since time.Duration) {
	w.t.Helper()
	w.exec(`INSERT INTO deaf_gap (listener, from_ms, to_ms, cause)
		SELECT 's', n - $1, n + 120000, 'pulse' FROM (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS
		n) x`, since.Milliseconds())
}

// billed is the billed time of a cluster's ranks, ms, as it is settled.
func (w *world) billed(c cluster.Cluster) (ms []int64) {
	w.t.Helper()
	rows, err := w.d.Pool.Query(w.ctx, "SELECT m.posted_billed_ms FROM lease l JOIN lease_meter m ON m.lease_id = l.id "+
		"WHERE l.cluster_id = $1 ORDER BY l.rank", c.ID)
	w.must(err)
	defer rows.Close()
	for rows.Next() {
		var v int64
		w.must(rows.Scan(&v))
		ms = append(ms, v)
	}
	return ms
}

func (w *world) noCredits(c cluster.Cluster) {
	w.t.Helper()
	credits, err := metering.Credits(w.ctx, w.d.Q, c.ID)
	w.must(err)
	if len(credits) > 0 {
		w.t.Errorf("hosts are debited: %+v", credits)
	}
}

func (w *world) release(c cluster.Cluster) cluster.Cluster {
	w.t.Helper()
	w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
	w.rounds(c, "released", in(lifecycle.Released))
	return w.clean(c)
}

// Time that hosts ran and signed is billed, whether the watchdog or the hosts' reports come first after an
// interruption.
func TestAnInterruptionIsBilledAsProvenInAnyOrder(t *testing.T) {
	t.Parallel()
	const ran = 10 * time.Minute
	for _, tc := range []struct {
		name   string
		away   time.Duration
		ranks  []int32
		outage bool
	}{
		{"an outage of ours", 5 * time.Minute, []int32{0, 1}, true},
		{"one host's line", time.Minute, []int32{1}, false},
		{"both hosts' lines", time.Minute, []int32{0, 1}, false},
	} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprint(tc.name, " ", seed), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
				c := w.runUp(spec(2, 1))
				w.ran(c, ran)
				w.away(c, tc.away, tc.ranks...)
				if tc.outage {
					w.outage(tc.away)
				}
				steps := []func(){
					func() { w.tick(c) }, func() { w.tick(c) },
					func() { w.must(w.hostOf(c, 0).sync(w.ctx, 0)) },
					func() { w.must(w.hostOf(c, 1).sync(w.ctx, 0)) },
				}
				if seed > 0 { // seed 0: the watchdog first
					rand.New(rand.NewPCG(seed, 7)).Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
				}
				for _, step := range steps {
					step()
				}
				if got := w.get(c); got.State != lifecycle.Running || !got.Billing {
					t.Fatalf("%s %s, billing %v: %s", got.State, got.Reason, got.Billing, got.Detail)
				}
				w.release(c)
				for rank, ms := range w.billed(c) {
					if ms < ran.Milliseconds() {
						t.Errorf("rank %d is billed %d ms of a run of more than %s", rank, ms, ran)
					}
				}
				w.noCredits(c)
			})
		}
	}
}

// A journal whose newest segment arrives first is not complete yet: a host is not to blame for segments that are still
// on their way.
func TestProofThatArrivesNewestFirstIsWaitedFor(t *testing.T) {
	t.Parallel()
	const ran = 10 * time.Minute
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	w.ran(c, ran)
	w.away(c, time.Minute, 1)
	w.hostOf(c, 1).newestFirst = true
	w.tick(c)
	for range 8 {
		w.must(w.hostOf(c, 1).sync(w.ctx, 0))
		w.must(w.hostOf(c, 0).sync(w.ctx, 0))
		w.tick(c)
	}
	w.release(c)
	for rank, ms := range w.billed(c) {
		if ms < ran.Milliseconds() {
			t.Errorf("rank %d is billed %d ms of a run of more than %s", rank, ms, ran)
		}
	}
	w.noCredits(c)
}

// Hosts that come back late after an outage of ours are not lost, and no payment is reversed.
func TestHostsHaveTimeToComeBackAfterAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	w.ran(c, 16*time.Minute)
	w.away(c, 10*time.Minute, 0, 1)
	w.outage(10 * time.Minute)
	for range 3 {
		w.tick(c)
		w.exec("UPDATE node SET since = since - interval '10 minutes' WHERE cluster_id = $1 AND state = 'lost'", c.ID)
	}
	if c = w.get(c); c.State != lifecycle.Running {
		t.Fatalf("%s %s", c.State, c.Detail)
	}
	w.release(c)
	w.noCredits(c)
}

// A rank that comes and goes: its third doubt within an hour is final, and the other ranks stop.
func TestTheThirdDoubtOfAHostIsFinal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	bad := false
	w.behave(1, func(_ *fakeHost, r *run) {
		if r.Started {
			r.Good = !bad
		}
	})
	for n := range 3 {
		bad = true
		w.must(w.hostOf(c, 1).sync(w.ctx, 0))
		w.must(w.hostOf(c, 0).sync(w.ctx, 0))
		if n < 2 {
			if got := w.get(c); got.State != lifecycle.Degraded || got.Billing {
				t.Fatalf("doubt %d: %s, billing %v", n+1, got.State, got.Billing)
			}
			bad = false
			w.must(w.hostOf(c, 1).sync(w.ctx, 0))
			if got := w.get(c); got.State != lifecycle.Running {
				t.Fatalf("back from doubt %d: %s %s", n+1, got.State, got.Detail)
			}
		}
	}
	if got := w.get(c); got.State != lifecycle.Failed {
		t.Fatalf("after the third doubt: %s %s", got.State, got.Detail)
	}
	w.must(w.hostOf(c, 0).sync(w.ctx, 0))
	if n := len(w.hostOf(c, 0).desired.Leases); n != 0 {
		t.Errorf("the other rank still runs")
	}
}

// One rank that accuses another takes nothing from it: no suspension of what is past, no loss, no hour of earnings.
func TestAnAccusationTakesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	w.ran(c, 16*time.Minute)
	w.behave(1, func(_ *fakeHost, r *run) { r.PeersDown = []int{0} })
	both := func() {
		w.must(w.hostOf(c, 0).sync(w.ctx, 0))
		w.must(w.hostOf(c, 1).sync(w.ctx, 0))
		w.tick(c)
	}
	both()
	if got := w.get(c); got.State != lifecycle.Running || !got.Billing {
		t.Fatalf("accused: %s, billing %v", got.State, got.Billing)
	}
	w.exec("UPDATE node_status SET peers_from_ms = ARRAY(SELECT f - 60000 FROM unnest(peers_from_ms) f)")
	both()
	if got := w.get(c); got.State != lifecycle.Degraded || got.Reason != lifecycle.ReasonPeersUnreachable ||
		got.Nodes[0].State != lifecycle.NodeReady {
		t.Fatalf("accused for long: %s %s", got.State, got.Reason)
	} else if d := got.Doubt; d == nil || d.Kind != "disputed" || len(d.Ranks) != 2 ||
		!strings.Contains(d.Why, "ranks 0 and 1 have lost contact with each other; no one is to blame") || d.Until == nil {
		t.Fatalf("the doubt is %+v", d)
	}
	w.exec("UPDATE undecided_span SET from_ms = from_ms - 60000")
	both()
	got := w.get(c)
	if got.State != lifecycle.Failed || got.Reason != lifecycle.ReasonPeersUnreachable {
		t.Fatalf("undecided for long: %s %s", got.State, got.Reason)
	}
	c = w.clean(c)
	w.noCredits(c)
	for rank, ms := range w.billed(c) {
		if ms < (15 * time.Minute).Milliseconds() {
			t.Errorf("rank %d is paid for %d ms", rank, ms)
		}
	}
	var strikes, bans int
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT (SELECT count(*) FROM gang_strike WHERE kind = 'undecided'), (SELECT "+
		"count(*) FROM pair_ban)").Scan(&strikes, &bans))
	if strikes != 2 || bans != 2 {
		t.Errorf("%d strikes, %d bans", strikes, bans)
	}
}

// Only the rank whose loss ended the billed time gives its hour back, not one that was silent for a moment beside it.
func TestAHiccupBesideALossIsNotDebited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	w.ran(c, 16*time.Minute)
	w.must(w.hostOf(c, 0).sync(w.ctx, 0))
	w.must(w.hostOf(c, 1).sync(w.ctx, 0))
	w.tick(c)
	w.away(c, 3*time.Minute, 1)
	w.away(c, 40*time.Second, 0)
	w.tick(c)
	w.exec("UPDATE node SET since = since - interval '10 minutes' WHERE cluster_id = $1 AND rank = 1", c.ID)
	w.tick(c)
	if got := w.get(c); got.State != lifecycle.Failed {
		t.Fatalf("%s %s", got.State, got.Detail)
	}
	credits, err := metering.Credits(w.ctx, w.d.Q, c.ID)
	w.must(err)
	if len(credits) != 1 || credits[0].Rank != 1 {
		t.Errorf("credited %+v", credits)
	}
}

// Time in doubt that is decided after its cluster has ended, while hosts still clean up, is in the timeline, too.
func TestJudge_EndedClusterThatCleansUpGetsItsEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	w.ran(c, 16*time.Minute)
	w.must(w.hostOf(c, 0).sync(w.ctx, 0))
	w.must(w.hostOf(c, 1).sync(w.ctx, 0))
	w.tick(c)
	w.away(c, 3*time.Minute, 1)
	w.tick(c)
	w.exec("UPDATE node SET since = since - interval '10 minutes' WHERE cluster_id = $1 AND rank = 1", c.ID)
	w.tick(c)
	if got := w.get(c); got.State != lifecycle.Failed {
		t.Fatalf("%s %s", got.State, got.Detail)
	}
	if kinds, _ := w.events(c); slices.Contains(kinds, "not_billed") {
		t.Fatal("the time was judged before the journals could arrive")
	}
	w.deadline(c) // no proof can arrive now; no host has reported that its lease is gone
	w.tick(c)
	var settled bool
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT settled_at IS NOT NULL FROM cluster WHERE id = $1", c.ID).Scan(&settled))
	if settled {
		t.Error("settled before the hosts reported")
	}
	if kinds, _ := w.events(c); !slices.Contains(kinds, "not_billed") {
		t.Errorf("no event about the time that is not billed among %v", kinds)
	}
}

// A second credit of a renter from the same operator within a week, for a failure that it could have caused, waits for
// a person.
func TestARepeatedInducibleCreditWaitsForAPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	var last cluster.Cluster
	for range 2 {
		failing := false
		w.behave(0, func(h *fakeHost, r *run) {
			if failing && r.Started && r.State == agentapi.NodeReady {
				h.fail(r, agentapi.ReasonOverlayFailed)
			}
		})
		c := w.runUp(spec(1, 1))
		w.rounds(c, "billed", func(cluster.Cluster) bool { w.tick(c); return w.costOf(c, 0) > 0 })
		failing = true
		w.rounds(c, "failed", in(lifecycle.Failed))
		last = w.clean(c)
	}
	admin := w.renter
	admin.Admin = true
	held, err := metering.NewLeases(w.d).HeldCredits(w.ctx, admin)
	w.must(err)
	if len(held) != 1 || held[0].Cluster != last.ID || held[0].Amount <= 0 {
		t.Fatalf("held %+v", held)
	}
	before := w.wallet()
	if err := failed(metering.NewLeases(w.d).DecideCredit(w.ctx, admin, held[0].Lease, true, "looks real",
		idem.Request{})); err != nil {
		t.Fatal(err)
	}
	if got := w.wallet() - before; got != held[0].Amount {
		t.Errorf("approved %s, the wallet rose by %s", held[0].Amount, got)
	}
	w.ledger()
}

// What a renter's processes run after its own release is billed as signed: a program that ignores the signal to end
// computes nothing for free.
func TestTheGraceOfAReleaseIsBilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	c := w.runUp(spec(1, 1))
	w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
	for range 3 {
		w.tick(c) // time goes by
	}
	w.rounds(c, "released", in(lifecycle.Released))
	w.clean(c)
	var signed int64
	w.must(w.d.Pool.QueryRow(w.ctx, `SELECT sum(s.end_ms - greatest(s.start_ms, w.opened_ms))::bigint
		FROM usage_segment s, (SELECT min(opened_ms) AS opened_ms FROM cluster_window) w`).Scan(&signed))
	if got := w.billed(c); len(got) != 1 || got[0] != signed {
		t.Errorf("billed %v ms, signed %d ms", got, signed)
	}
}

// A rank that never starts is to blame for the time that the others computed meanwhile, and nothing is billed.
func TestARankThatNeverStartsIsToBlame(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	w.behave(1, func(_ *fakeHost, r *run) { r.Started, r.Good = false, false })
	c := w.rounds(w.rent(spec(2, 1)), "released to start", func(cluster.Cluster) bool {
		var started bool
		w.must(w.d.Pool.QueryRow(w.ctx, "SELECT bool_or(started_at IS NOT NULL) FROM node").Scan(&started))
		return started
	})
	w.exec("UPDATE cluster SET start_deadline = clock_timestamp() - interval '1 ms', go_at = go_at - interval '30 s' "+
		"WHERE id = $1", c.ID)
	w.exec("UPDATE node SET started_at = started_at - interval '30 s' WHERE started_at IS NOT NULL")
	w.tick(c)
	if got := w.get(c); got.State != lifecycle.Failed || got.Reason != lifecycle.ReasonTimeout {
		t.Fatalf("%s %s", got.State, got.Detail)
	}
	var ms int64
	var rank int
	w.must(w.d.Pool.QueryRow(w.ctx, `SELECT s.to_ms - s.from_ms, l.rank FROM suspension s JOIN lease l ON l.id = ANY
		(s.culprits)
		WHERE s.class = 'proof' AND cardinality(s.culprits) = 1`).Scan(&ms, &rank))
	if rank != 1 || ms < 30_000 {
		t.Errorf("rank %d is to blame for %d ms", rank, ms)
	}
	w.clean(c)
	for rank, ms := range w.billed(c) {
		if ms != 0 {
			t.Errorf("rank %d is billed %d ms", rank, ms)
		}
	}
}
