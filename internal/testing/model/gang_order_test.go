package model

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
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

// gangStory is everything that is true about a gang's run. Moments are ms after from.
type gangStory struct {
	from  int64 // unix ms
	ticks int64 // to the end of the run
	ranks []rankStory
	// gap is an outage of the platform with its settle-in; empty: there was none.
	gap    interval.Span
	faults bool // of hosts; without, every rank proves its whole run
}

type rankStory struct {
	start, exit int64
	reports     []reportStory // in order; the last tells the exit
	segments    []interval.Span
	deaf        map[int]interval.Span // when its host hears nothing of another rank
	inTime      bool                  // it tells so as soon as it is noticed; otherwise it is cut off from us meanwhile
}

type reportStory struct {
	at   int64
	good bool
}

func (s gangStory) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "gap %v, end %d", s.gap, s.ticks)
	for k, r := range s.ranks {
		fmt.Fprintf(&b, "\nrank %d: %d to %d, signed %v, deaf %v, in time %v, reports", k, r.start, r.exit, r.segments,
			r.deaf, r.inTime)
		for _, p := range r.reports {
			fmt.Fprintf(&b, " %d", p.at)
			if !p.good {
				b.WriteString("(bad)")
			}
		}
	}
	return b.String()
}

// received is the story as it would be if the platform had heard every report.
func (s gangStory) received() gangStory {
	s.gap, s.ranks = interval.Span{}, slices.Clone(s.ranks)
	for k := range s.ranks {
		r := &s.ranks[k]
		r.reports = []reportStory{r.reports[0]}
		for at := r.reports[0].at + 10_000; at < r.exit; at += 10_000 {
			r.reports = append(r.reports, reportStory{at, true})
		}
		r.reports = append(r.reports, reportStory{r.exit, true})
	}
	return s
}

// newStory makes up a run of two to four minutes that ended two seconds ago. With an outage the platform misses
// reports. Faults of hosts are that they say that they are not well, report nothing for a while, or sign nothing for a
// while.
func newStory(rnd *rand.Rand, n int, now int64, outage, faults bool) gangStory {
	length := 120_000 + rnd.Int64N(120_000)
	s := gangStory{from: now - 2_000 - length, faults: faults}
	if outage {
		s.gap.Start = rnd.Int64N(length - 40_000)
		s.gap.End = s.gap.Start + 20_000 + rnd.Int64N(60_000) + 120_000
	}
	for range n {
		r := rankStory{start: rnd.Int64N(4_000), exit: length - rnd.Int64N(3_000)}
		s.ticks = max(s.ticks, r.exit)
		bad, quiet := interval.Span{}, interval.Span{}
		if faults && rnd.IntN(2) == 0 {
			bad.Start = 10_000 + rnd.Int64N(length/2)
			bad.End = bad.Start + rnd.Int64N(30_000)
		}
		if faults && rnd.IntN(2) == 0 {
			quiet.Start = rnd.Int64N(length - 30_000)
			quiet.End = quiet.Start + 30_000 + rnd.Int64N(60_000)
			if rnd.IntN(3) == 0 { // until the exit
				quiet = interval.Span{Start: length - 40_000 - rnd.Int64N(40_000), End: length}
			}
		}
		missed := interval.Span{}
		if outage {
			missed = interval.Span{Start: s.gap.Start, End: s.gap.End - 120_000 + rnd.Int64N(30_000)}
		}
		for at := r.start + rnd.Int64N(2_000); at < r.exit; at += 8_000 + rnd.Int64N(7_000) {
			if len(r.reports) > 0 && (at >= quiet.Start && at < quiet.End || at >= missed.Start && at < missed.End) {
				continue
			}
			r.reports = append(r.reports, reportStory{at, len(r.reports) == 0 || at < bad.Start || at >= bad.End})
		}
		r.reports = append(r.reports, reportStory{r.exit, true})
		for at := r.start; at < r.exit; {
			end := min(r.exit, at+1_000+rnd.Int64N(60_000))
			r.segments = append(r.segments, interval.Span{Start: at, End: end})
			at = end
			if faults && (rnd.IntN(4) == 0 || at > quiet.Start && at < quiet.End && rnd.IntN(2) == 0) {
				at += rnd.Int64N(50_000) // the agent died and signed nothing
			}
		}
		s.ranks = append(s.ranks, r)
	}
	if faults && rnd.IntN(3) > 0 {
		s.deafen(rnd, length)
	}
	return s
}

// deafen lets two ranks hear nothing of each other for some seconds, or one of them of the other. Neither reports
// meanwhile, and both do right after it.
func (s *gangStory) deafen(rnd *rand.Rand, length int64) {
	i := rnd.IntN(len(s.ranks))
	j := (i + 1 + rnd.IntN(len(s.ranks)-1)) % len(s.ranks)
	start := 20_000 + rnd.Int64N(length-80_000)
	end := start + 8_000 + rnd.Int64N(8_000)
	for n, pair := range [][2]int{{i, j}, {j, i}} {
		if n == 1 && rnd.IntN(4) == 0 {
			break // one voice
		}
		r := &s.ranks[pair[0]]
		d := interval.Span{Start: start + rnd.Int64N(1500), End: end + rnd.Int64N(1500)}
		r.deaf, r.inTime = map[int]interval.Span{pair[1]: d}, rnd.IntN(2) == 0
		var cut []interval.Span
		for _, p := range r.segments {
			if p.Start < d.End && d.End < p.End {
				cut = append(cut, interval.Span{Start: p.Start, End: d.End})
				p.Start = d.End
			}
			cut = append(cut, p)
		}
		r.segments = cut
		var reports []reportStory
		for _, p := range r.reports {
			if len(reports) > 0 && p.at >= d.Start && p.at <= d.End+500 {
				continue
			}
			if len(reports) > 0 && reports[len(reports)-1].at < d.Start && p.at > d.End+500 &&
				p.at-reports[len(reports)-1].at <= lostAfter {
				reports = append(reports, reportStory{d.End + 500, reports[len(reports)-1].good})
			}
			reports = append(reports, p)
		}
		r.reports = reports
	}
}

// deafSpans are the silences that a host signs: only with its segments.
func (r rankStory) deafSpans(peer int) interval.Set {
	return interval.Of(r.deaf[peer]).Intersect(interval.Of(r.segments...))
}

// signedUp is for which time segments say themselves that the rank was up: those with facts. It counts whatever its
// reports say.
func (r rankStory) signedUp() interval.Set {
	var out []interval.Span
	for _, p := range r.segments {
		for _, d := range r.deaf {
			if d.And(p).Len() > 0 {
				out = append(out, p)
			}
		}
	}
	return interval.Of(out...)
}

// silences is when the platform knows that a host was silent to it: reports were missing, or told of deafness too late.
func (r rankStory) silences() (out []interval.Span) {
	for i, p := range r.reports[1:] {
		if before := r.reports[i].at; p.at-before > lostAfter {
			out = append(out, interval.Span{Start: before, End: p.at})
		}
	}
	for peer := range r.deaf {
		if spans := r.deafSpans(peer); len(spans) > 0 && !r.inTime {
			out = append(out, interval.Span{Start: spans[0].Start, End: day})
		}
	}
	return out
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
	got, err := f.clusters.Get(f.t.Context(), f.renter.Org, c.ID)
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
	// The start is not what is judged here: it takes place in the past, so nobody is silent while it does.
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
			if len(r.deaf) > 0 { // a report never comes before the segments that tell whom its host did not hear
				for n, g := range all {
					if r.segments[n].End <= p.at {
						with = append(with, g)
					}
				}
			}
			deliver := func() {
				s.deliver(f, k, st.Lease, func() { f.report(h, boot0+p.at, st, with...) })
			}
			if i == 0 { // the gang runs before anybody looks
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

// outcome is what a gang's run came to.
type outcome struct {
	windows   interval.Set
	suspended map[string]interval.Set // by class and culprits
	bills     [][3]int64              // by rank: ms, renter's and host's amounts
	owed      []string
}

func (o outcome) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "windows %v", o.windows)
	for _, key := range slices.Sorted(maps.Keys(o.suspended)) {
		if len(o.suspended[key]) > 0 {
			fmt.Fprintf(&b, "\n%s %v", key, o.suspended[key])
		}
	}
	slices.Sort(o.owed)
	fmt.Fprintf(&b, "\nbills %v\nowed %s", o.bills, strings.Join(o.owed, "; "))
	return b.String()
}

// begin is when the last rank has started.
func (s gangStory) begin() (ms int64) {
	for _, r := range s.ranks {
		ms = max(ms, r.start)
	}
	return ms
}

// oracle is what the rule says of the story, by the oracle of this package.
func (s gangStory) oracle(f *field, leases []id.Lease) string {
	f.t.Helper()
	begin := s.begin()
	g := gang{from: s.from + begin, ticks: int(s.ticks - begin), forUndecided: 500_000, forAll: 1_000_000}
	set := func(spans ...interval.Span) bits {
		out := make(bits, g.ticks)
		for _, p := range interval.Of(spans...).Clip(interval.Span{Start: begin, End: s.ticks}) {
			for t := p.Start; t < p.End; t++ {
				out[t-begin] = true
			}
		}
		return out
	}
	g.gap, g.written = set(s.gap), set()
	for k, r := range s.ranks {
		of := gangRank{operator: k, required: set(interval.Span{Start: 0, End: s.ticks}), silent: set(), relaySilent: set()}
		f.must(f.d.Pool.QueryRow(f.t.Context(), `SELECT p.rate, b.srate, l.host_share_ppm, b.reserved FROM lease l JOIN
			lease_price p ON p.lease_id = l.id
			JOIN lease_bond b ON b.lease_id = l.id WHERE l.id = $1`, leases[k]).Scan(&of.rate, &of.standby, &of.ppm, &of.bond))
		attested, unwell := r.attested()
		unwell = interval.Of(unwell...).Minus(r.signedUp())
		of.attested = set(append(attested, interval.Span{Start: r.exit, End: s.ticks})...)
		of.unwell = set(unwell...)
		of.signed = set(interval.Of(r.segments...).Minus(interval.Of(unwell...))...)
		of.silent, of.deaf = set(r.silences()...), map[int]bits{}
		for peer := range r.deaf {
			of.deaf[peer] = set(r.deafSpans(peer)...)
		}
		g.ranks = append(g.ranks, of)
	}
	v := g.judge()
	out := outcome{suspended: map[string]interval.Set{}}
	byClass := map[string][]interval.Span{}
	var windows []interval.Span
	for t := range g.ticks {
		at := begin + int64(t)
		one := interval.Span{Start: at, End: at + 1}
		if v.billable[t] {
			windows = grown(windows, one)
			continue
		}
		key := fmt.Sprint(v.class[t], v.culprits[t])
		byClass[key] = grown(byClass[key], one)
	}
	out.windows = interval.Of(windows...)
	for key, spans := range byClass {
		out.suspended[key] = interval.Of(spans...)
	}
	for k := range g.ranks {
		out.bills = append(out.bills, [3]int64{v.billedMS[k], v.renter[k], v.host[k]})
		if ms := v.undecided[k].ms + v.platform[k].ms; ms > 0 {
			out.owed = append(out.owed, fmt.Sprintf("%d by relief: %d ms %d", k, ms, v.undecided[k].paid+v.platform[k].paid))
		}
	}
	for pair, d := range v.owed {
		out.owed = append(out.owed, fmt.Sprintf("%d by %d: %d ms %d %d", pair[0], pair[1], d.ms, d.paid,
			millionths(d.paid, g.ranks[pair[0]].ppm)))
	}
	return out.String()
}

// grown adds a span that touches or follows the last one.
func grown(spans []interval.Span, s interval.Span) []interval.Span {
	if n := len(spans); n > 0 && spans[n-1].End == s.Start {
		spans[n-1].End = s.End
		return spans
	}
	return append(spans, s)
}

// attested is for which time the rank's reports say in time that it was up, and for which they say that it was not.
func (r rankStory) attested() (up, unwell []interval.Span) {
	for i, p := range r.reports[1:] {
		before := r.reports[i]
		span := interval.Span{Start: before.at, End: p.at}
		switch {
		case !before.good:
			unwell = append(unwell, span)
		case !p.good:
		case span.Len() <= lostAfter:
			up = append(up, span)
		}
	}
	return append(up, interval.Span{Start: r.start, End: r.reports[0].at}), unwell
}
