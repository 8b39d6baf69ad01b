package model

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
)

// envOrders says how many random gangs TestAGangIsTheSameInAnyOrder plays.
const envOrders = "MUSTER_PROOF_ORDERS"

// envOrderSeed is the number of the first gang, to play one again that failed.
const envOrderSeed = "MUSTER_PROOF_ORDER_SEED"

// ordersOfEach is in how many orders the facts about each gang arrive.
const ordersOfEach = 4

// lostAfter is the default of cluster.Config.LostAfter in milliseconds.
const lostAfter = 35_000

// TestAGangIsTheSameInAnyOrder is I2 and I12 on a real database: the same reports, signed segments, looks of the
// watchdog and outages of the platform, interleaved, repeated and batched at random, come to the same windows,
// suspensions, bills, standby and relief, and these are the oracle's. A host's own reports stay in their order, with
// old ones repeated in between: a report that a later one has overtaken counts as lost.
func TestAGangIsTheSameInAnyOrder(t *testing.T) {
	t.Parallel()
	number := func(env string, otherwise uint64) uint64 {
		s := os.Getenv(env)
		if s == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s=%q: want a number", env, s)
		}
		return n
	}
	gangs, start := number(envOrders, 5), number(envOrderSeed, rand.Uint64())
	t.Logf("seed %d", start)
	fields := map[int]*field{}
	for i := range gangs {
		seed := start + i
		rnd := rand.New(rand.NewPCG(seed, 2))
		n := 2 + rnd.IntN(2)
		if fields[n] == nil {
			fields[n] = newField(t, n)
		}
		f := fields[n]
		s := newStory(rnd, n, clock(t, f.d), rnd.IntN(2) == 0, rnd.IntN(3) > 0)
		for order := range ordersOfEach {
			leases := s.play(f, rnd)
			if got, want := s.result(f, leases), s.oracle(f, leases); got != want {
				t.Fatalf("gang %d: order %d gives\n%s\nthe oracle says\n%s\nof %s", seed, order, got, want, s)
			}
			if got, want := s.oracle(f, leases), s.received().oracle(f, leases); !s.faults && got != want {
				t.Fatalf("I12: gang %d comes to\n%s\nwithout the outage\n%s\nof %s", seed, got, want, s)
			}
		}
	}
}

// play rents the gang, delivers the story's facts in a random order, settles the cluster and returns its leases.
func (s gangStory) play(f *field, rnd *rand.Rand) []id.Lease {
	f.t.Helper()
	const boot0 = int64(1_000_000) // the hosts' clocks at from
	f.exec("DELETE FROM silence")
	f.exec("DELETE FROM deaf_gap")
	f.exec("DELETE FROM gang_strike")
	c := f.rent()
	hosts := make([]*fieldHost, len(s.ranks))
	status := make([]agentapi.LeaseStatus, len(s.ranks))
	leases := make([]id.Lease, len(s.ranks))
	for k := range s.ranks {
		for _, h := range f.hosts {
			if h.id == c.Nodes[k].HostID {
				hosts[k] = h
			}
		}
		h := hosts[k]
		h.boot = id.New[id.Claim]().String()
		f.exec("INSERT INTO time_anchor (host_id, boot_id, number, boot_ms, server_ms) VALUES ($1, $2, 1, $3, $4)", h.id,
			h.boot, boot0, s.from)
		f.must(f.d.Pool.QueryRow(f.t.Context(), "SELECT id FROM lease WHERE cluster_id = $1 AND rank = $2", c.ID,
			k).Scan(&leases[k]))
		status[k] = agentapi.LeaseStatus{
			LeaseRef:  agentapi.LeaseRef{Lease: leases[k].String(), Epoch: 1},
			State:     agentapi.NodeReady,
			AtBarrier: true,
			WGKey:     "key-" + leases[k].String(),
			Endpoints: []string{"192.0.2.1:51820"},
			Preflight: &agentapi.Preflight{OK: true},
		}
	}
	// The cluster was rented a minute before the run.
	f.exec(`UPDATE lease SET created_at = to_timestamp(($2::bigint - 60000) / 1000.0), covered_from_ms = $2::bigint -
		60000 WHERE cluster_id = $1`, c.ID, s.from)
	f.exec("UPDATE lease_meter SET settled_through_ms = $2::bigint - 60000 WHERE lease_id IN (SELECT id FROM lease "+
		"WHERE cluster_id = $1)", c.ID, s.from)
	f.exec("UPDATE node_status SET reported_at = to_timestamp(($2::bigint - 50000) / 1000.0) WHERE node_id IN (SELECT "+
		"id FROM node WHERE cluster_id = $1)", c.ID, s.from)
	for k, h := range hosts {
		f.report(h, boot0-3_000, status[k])
	}
	f.exec(`UPDATE cluster SET created_at = to_timestamp(($2::bigint - 60000) / 1000.0), go_at = to_timestamp(($2::bigint
		- 1000) / 1000.0),
		start_deadline = clock_timestamp() + interval '1 hour' WHERE id = $1`, c.ID, s.from)
	for _, step := range s.steps(f, rnd, c.ID, hosts, status, boot0) {
		step()
	}
	for k, h := range hosts { // every segment has arrived by now; again, for those that had to wait for an earlier one
		f.ingest(h, s.sign(h, status[k], k, boot0)...)
	}
	for k, h := range hosts {
		f.report(h, boot0+s.ranks[k].exit+500, agentapi.LeaseStatus{})
	}
	for range 3 {
		f.look(c.ID)
	}
	got, err := f.clusters.Views.Get(f.t.Context(), f.renter.Org, c.ID)
	f.must(err)
	if got.State != lifecycle.Released {
		f.t.Fatalf("%s %s: %s\nof %s", got.State, got.Reason, got.Detail, s)
	}
	return leases
}

// sign makes the rank's signed segments.
func (s gangStory) sign(h *fieldHost, st agentapi.LeaseStatus, rank int, boot0 int64) (out []agentapi.Segment) {
	spans := s.ranks[rank].segments
	for i, p := range spans {
		g := agentapi.Segment{
			Lease:     st.Lease,
			Epoch:     1,
			BootID:    h.boot,
			Seq:       int64(i + 1),
			Anchor:    1,
			BootEndMS: boot0 + p.End,
			StartMS:   s.from + p.Start,
			EndMS:     s.from + p.End,
			Final:     i+1 == len(spans),
		}
		for peer, d := range s.ranks[rank].deaf {
			if d = d.And(p); d.Len() > 0 {
				g.Facts = &agentapi.Facts{
					Up:   true,
					Deaf: []agentapi.DeafSpan{{Rank: peer, FromBootMS: boot0 + d.Start, ToBootMS: boot0 + d.End}},
				}
			}
		}
		g.Sign(h.id.String(), h.key)
		out = append(out, g)
	}
	return out
}

// deliver has a host report, or only send segments, and lets what it signed of its silences have come when it did.
func (s gangStory) deliver(f *field, rank int, lease string, send func()) {
	send()
	if r := s.ranks[rank]; len(r.deaf) == 0 || !r.inTime {
		return
	}
	l, err := id.Parse[id.Lease](lease)
	f.must(err)
	f.exec(`WITH q AS (SELECT set_config('session_replication_role', 'replica', true))
		UPDATE deaf_span SET received_at = to_timestamp((from_ms + 9000) / 1000.0) FROM q WHERE lease_id = $1`, l)
}

// steps are the story's facts in a random order: the reports of each host in their order, everything else in any.
func (s gangStory) steps(f *field, rnd *rand.Rand, cl id.Cluster, hosts []*fieldHost, status []agentapi.LeaseStatus,
	boot0 int64) (out []func()) {
	var queues [][]func()
	// The start is not judged here: it lies in the past, so that no host is silent during it.
	out = append(out, func() {
		f.exec("INSERT INTO deaf_gap (listener, from_ms, to_ms, cause) VALUES ('s', $1, $2, 'restore')", s.from-60_000,
			s.from+day)
	})
	for k, r := range s.ranks {
		h := hosts[k]
		var reports []func()
		segments := s.sign(h, status[k], k, boot0)
		all := slices.Clone(segments)
		for i, p := range r.reports {
			st := status[k]
			st.Started, st.Good, st.StartBootMS = true, p.good, boot0+r.start
			if i+1 == len(r.reports) {
				code := 0
				st.State, st.Reason, st.ExitCode, st.ExitBootMS, st.Good = agentapi.NodeStopped, agentapi.ReasonExited, &code,
					boot0+r.exit, false
			}
			with := segments[:0:0]
			if rnd.IntN(3) == 0 {
				with = append(with, segments[rnd.IntN(len(segments))])
			}
			if len(r.deaf) > 0 { // a report never comes before the segments that name the silent peers
				for n, g := range all {
					if r.segments[n].End <= p.at {
						with = append(with, g)
					}
				}
			}
			deliver := func() {
				s.deliver(f, k, st.Lease, func() { f.report(h, boot0+p.at, st, with...) })
			}
			if i == 0 { // the gang runs before the first check
				out = append(out, deliver)
				continue
			}
			reports = append(reports, deliver)
			if rnd.IntN(6) == 0 {
				reports = append(reports, deliver)
			}
			if rnd.IntN(10) == 0 { // and an old one may come once more
				reports = append(reports, reports[rnd.IntN(len(reports))])
			}
		}
		queues = append(queues, reports)
		rnd.Shuffle(len(segments), func(i, j int) { segments[i], segments[j] = segments[j], segments[i] })
		for len(segments) > 0 {
			n := 1 + rnd.IntN(len(segments))
			batch := segments[:n]
			queues = append(queues, []func(){func() { s.deliver(f, k, status[k].Lease, func() { f.ingest(h, batch...) }) }})
			segments = segments[n:]
		}
	}
	for range rnd.IntN(8) {
		queues = append(queues, []func(){func() { f.look(cl) }})
	}
	out = append(out, func() { f.exec("DELETE FROM deaf_gap") })
	if s.gap.Len() > 0 { // the platform knows of its own outage before it concludes anything
		out = append(out, func() {
			f.exec("INSERT INTO deaf_gap (listener, from_ms, to_ms, cause) VALUES ('s', $1, $2, 'pulse')", s.from+s.gap.Start,
				s.from+s.gap.End)
		})
	}
	for {
		queues = slices.DeleteFunc(queues, func(q []func()) bool { return len(q) == 0 })
		if len(queues) == 0 {
			return out
		}
		k := rnd.IntN(len(queues))
		n := 1 + rnd.IntN(len(queues[k]))
		out, queues[k] = append(out, queues[k][:n]...), queues[k][n:]
	}
}

// result is what the cluster came to, as text.
func (s gangStory) result(f *field, leases []id.Lease) string {
	f.t.Helper()
	var of id.Cluster
	f.must(f.d.Pool.QueryRow(f.t.Context(), "SELECT cluster_id FROM lease WHERE id = $1", leases[0]).Scan(&of))
	rank := map[id.Lease]int{}
	for k, l := range leases {
		rank[l] = k
	}
	var windows []interval.Span
	f.rows("SELECT opened_ms, closed_ms FROM cluster_window WHERE cluster_id = $1", []any{of},
		func(scan func(...any) error) error {
			var w interval.Span
			if err := scan(&w.Start, &w.End); err != nil {
				return fmt.Errorf("a window is still open: %w", err)
			}
			windows = append(windows, interval.Span{Start: w.Start - s.from, End: w.End - s.from})
			return nil
		})
	run := interval.Span{Start: s.begin(), End: s.ticks}
	r := outcome{windows: interval.Of(windows...).Clip(run), suspended: map[string]interval.Set{}}
	f.rows("SELECT from_ms, to_ms, class, culprits FROM suspension WHERE cluster_id = $1", []any{of},
		func(scan func(...any) error) error {
			var p interval.Span
			var class string
			var who []id.Lease
			if err := scan(&p.Start, &p.End, &class, &who); err != nil {
				return err
			}
			var ranks []int
			for _, l := range who {
				ranks = append(ranks, rank[l])
			}
			slices.Sort(ranks)
			key := fmt.Sprint(class, ranks)
			r.suspended[key] = r.suspended[key].Union(interval.Of(interval.Span{
				Start: p.Start - s.from,
				End:   p.End - s.from,
			}).Clip(run))
			return nil
		})
	f.rows("SELECT m.posted_billed_ms, m.posted, m.host_posted FROM lease l JOIN lease_meter m ON m.lease_id = l.id "+
		"WHERE l.cluster_id = $1 ORDER BY l.rank",
		[]any{of}, func(scan func(...any) error) error {
			var b [3]int64
			err := scan(&b[0], &b[1], &b[2])
			r.bills = append(r.bills, b)
			return err
		})
	f.rows("SELECT victim, culprit, ms, posted, host_posted FROM standby WHERE cluster_id = $1 AND ms > 0", []any{of},
		func(scan func(...any) error) error {
			var v, k id.Lease
			var ms, posted, hosts int64
			err := scan(&v, &k, &ms, &posted, &hosts)
			r.owed = append(r.owed, fmt.Sprintf("%d by %d: %d ms %d %d", rank[v], rank[k], ms, posted, hosts))
			return err
		})
	f.rows("SELECT victim, ms, host_posted FROM standby_relief WHERE cluster_id = $1 AND ms > 0", []any{of},
		func(scan func(...any) error) error {
			var v id.Lease
			var ms, paid int64
			err := scan(&v, &ms, &paid)
			r.owed = append(r.owed, fmt.Sprintf("%d by relief: %d ms %d", rank[v], ms, paid))
			return err
		})
	return r.String()
}

func (f *field) rows(sql string, args []any, each func(scan func(...any) error) error) {
	f.t.Helper()
	rows, err := f.d.Pool.Query(f.t.Context(), sql, args...)
	f.must(err)
	defer rows.Close()
	for rows.Next() {
		f.must(each(rows.Scan))
	}
	f.must(rows.Err())
}
