package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func replacing(nodes, gpus int) market.Spec {
	s := spec(nodes, gpus)
	s.OnNodeFailure = "replace"
	return s
}

// vanish lets a rank's host be silent for so long that the rank is lost for good.
func (w *world) vanish(c cluster.Cluster, rank int) {
	w.t.Helper()
	w.quiet(c, rank, time.Minute)
	w.tick(c)
	w.exec("UPDATE node SET since = since - interval '10 minutes' WHERE cluster_id = $1 AND rank = $2 AND state = 'lost'",
		c.ID, rank)
	w.tick(c)
}

// events are the kinds of a cluster's timeline.
func (w *world) events(c cluster.Cluster) (kinds []string, text string) {
	w.t.Helper()
	ev, err := w.clusters[0].Views.Events(w.ctx, w.renter.Org, c.ID, 0, 1000)
	w.must(err)
	for _, e := range ev {
		kinds = append(kinds, e.Kind)
		text += fmt.Sprintf("%s: %s (%s)\n", e.Kind, e.Title, e.Detail)
	}
	return kinds, text
}

// one checks that no rank has two live leases, that every live lease is its node's, and that GPUs are claimed for one
// lease.
func (w *world) one(c cluster.Cluster) {
	w.t.Helper()
	var twice, astray, double int
	w.must(w.d.Pool.QueryRow(w.ctx, `SELECT
		(SELECT count(*) FROM (SELECT rank FROM lease WHERE cluster_id = $1 AND ended_at IS NULL GROUP BY rank HAVING
		count(*) > 1) t),
		(SELECT count(*) FROM lease l WHERE l.cluster_id = $1 AND l.ended_at IS NULL
			AND NOT EXISTS (SELECT FROM node n WHERE n.lease_id = l.id AND n.host_id = l.host_id AND n.rank = l.rank)),
		(SELECT count(*) FROM (SELECT gpu_id FROM gpu_claim WHERE ended_at IS NULL GROUP BY gpu_id HAVING count(*) > 1) g)`,
		c.ID).Scan(&twice, &astray, &double))
	if twice+astray+double > 0 {
		w.t.Fatalf("%d ranks with two live leases, %d live leases that are no node's, %d GPUs claimed twice", twice, astray,
			double)
	}
}

// withinWindows checks that no lease is billed for more than the windows of its cluster during its life.
func (w *world) withinWindows(c cluster.Cluster) {
	w.t.Helper()
	var over int
	w.must(w.d.Pool.QueryRow(w.ctx, `SELECT count(*) FROM lease l JOIN lease_meter m ON m.lease_id = l.id WHERE
		l.cluster_id = $1 AND m.posted_billed_ms > (
		SELECT coalesce(sum(greatest(0, least(coalesce(w.closed_ms, w.confirmed_until_ms), coalesce(extract(epoch FROM
		l.ended_at) * 1000, 1e15)::bigint)
			- greatest(w.opened_ms, (extract(epoch FROM l.created_at) * 1000)::bigint - 1))), 0) FROM cluster_window w WHERE
			w.cluster_id = l.cluster_id)`,
		c.ID).Scan(&over))
	if over > 0 {
		w.t.Errorf("%d leases are billed beyond the windows", over)
	}
}

func TestAnotherHostTakesALostRank(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 3, gpus: 2})
	c := w.runUp(replacing(2, 2))
	w.ran(c, time.Minute)
	w.rounds(c, "billed", func(cluster.Cluster) bool { w.tick(c); return w.costOf(c, 1) > 0 })
	gone, address, price := w.hostOf(c, 1), c.Nodes[1].Address, c.PricePerHour
	lost := gone.desired.Leases[0].LeaseRef
	w.vanish(c, 1)
	w.one(c)
	c = w.get(c)
	if c.State != lifecycle.Provisioning || c.Epoch != 2 || c.Billing || c.Nodes[1].HostID == gone.id ||
		c.Nodes[1].Address != address || c.Replacing != nil {
		_, text := w.events(c)
		t.Fatalf("%s, epoch %d, billing %v, %+v\n%s", c.State, c.Epoch, c.Billing, c.Nodes[1], text)
	}
	if c.PricePerHour != price {
		t.Errorf("now costs %s, %s before", c.PricePerHour, price)
	}
	var closed int64
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT max(closed_ms) FROM cluster_window WHERE cluster_id = $1", c.ID).Scan(&closed))

	// The host that was lost comes back: its desired state says to stop, and its reports about the ended lease do not
	// count.
	w.must(gone.sync(w.ctx, 0))
	if len(gone.desired.Leases) != 0 {
		t.Errorf("the lost host is told to run %+v", gone.desired.Leases)
	}
	c = w.rounds(c, "running", in(lifecycle.Running))
	if !c.Billing || c.Nodes[1].HostID == gone.id {
		t.Errorf("billing %v, rank 1 on %s", c.Billing, c.Nodes[1].HostName)
	}
	for _, l := range w.hostOf(c, 0).desired.Leases {
		if p := l.Network.Peers; len(p) != 1 || p[0].Address != address || p[0].Key == "key-"+lost.Lease || p[0].Key == "" {
			t.Errorf("rank 0 has the peers %+v", p)
		}
	}
	for ref, r := range gone.runs {
		if ref.Lease == lost.Lease && r.State == agentapi.NodeReady {
			t.Error("the lost host still runs the ended lease")
		}
	}
	var opened int64
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT opened_ms FROM cluster_window WHERE cluster_id = $1 AND closed_ms IS NULL "+
		"AND limit_ms IS NULL", c.ID).Scan(&opened))
	var started time.Time
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT max(started_at) FROM node WHERE cluster_id = $1", c.ID).Scan(&started))
	if opened < closed || opened < started.UnixMilli() {
		t.Errorf("suspended at %d, opened again at %d, though the last rank started at %d", closed, opened,
			started.UnixMilli())
	}
	credits, err := metering.Credits(w.ctx, w.d.Q, c.ID)
	w.must(err)
	if len(credits) != 1 || credits[0].Lease.String() != lost.Lease || credits[0].Amount <= 0 ||
		credits[0].Reason != "host_lost" {
		t.Errorf("credited %+v", credits)
	}
	told, err := notify.List(w.ctx, w.d.Q, w.renter.Org, notify.Filter{Limit: 10})
	w.must(err)
	if s := fmt.Sprint(told); !strings.Contains(s, "lost rank 1: another host is looked for") ||
		!strings.Contains(s, "another host took rank 1") {
		t.Errorf("the renter was told %s", s)
	}
	w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
	w.rounds(c, "released", in(lifecycle.Released))
	w.clean(c)
	w.withinWindows(c)
	var left int
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT count(*) FROM lease WHERE cluster_id = $1 AND (gone_at IS NULL OR "+
		"settled_at IS NULL)", c.ID).Scan(&left))
	if left > 0 {
		t.Errorf("%d leases are not parted with", left)
	}
}

func TestALostRankWaitsForAHostWithTheReasonShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(replacing(2, 1))
	gone := w.hostOf(c, 1)
	w.vanish(c, 1)
	w.tick(c)
	c = w.get(c)
	if r := c.Replacing; c.State != lifecycle.Degraded || c.Billing || r == nil || len(r.Ranks) != 1 || r.Ranks[0] != 1 ||
		!strings.Contains(r.Why, "no host fits") || !strings.Contains(c.Detail, r.Why) ||
		!strings.Contains(c.Detail, "nothing is billed") {
		t.Fatalf("%s, billing %v: %+v: %s", c.State, c.Billing, r, c.Detail)
	}
	for range 8 { // the other rank stops and starts again up to where it waits
		w.must(w.hostOf(c, 0).sync(w.ctx, 0))
	}
	before, _ := w.events(c)
	for range 3 {
		w.tick(c)
		w.must(w.hostOf(c, 0).sync(w.ctx, 0))
	}
	if after, text := w.events(c); len(after) != len(before) {
		t.Errorf("the same is told over and over:\n%s", text)
	}
	// The renter's own host is no supply, and neither is a dearer one.
	w.operator, w.renter = w.renter, w.operator
	w.addHost(2, 1)
	w.operator, w.renter = w.renter, w.operator
	w.tick(c)
	if c = w.get(c); c.State != lifecycle.Degraded || !strings.Contains(c.Replacing.Why,
		"an organisation cannot rent from itself") {
		t.Fatalf("%s: %s", c.State, c.Detail)
	}
	w.addHost(3, 1)
	w.exec("UPDATE offer SET price = price * 2 WHERE host_id = $1", w.hosts[3].id)
	w.tick(c)
	if c = w.get(c); c.State != lifecycle.Degraded {
		t.Fatalf("%s at %s", c.State, c.PricePerHour)
	}
	// No replacement came in time.
	w.exec("UPDATE cluster SET replace_until = clock_timestamp() WHERE id = $1", c.ID)
	w.tick(c)
	c = w.get(c)
	if c.State != lifecycle.Failed || c.Reason != lifecycle.ReasonHostLost ||
		!strings.Contains(c.Detail, "no other host was found for it in time") || c.Replacing != nil {
		t.Fatalf("%s %s: %s", c.State, c.Reason, c.Detail)
	}
	told, err := notify.List(w.ctx, w.d.Q, w.renter.Org, notify.Filter{Limit: 10})
	w.must(err)
	if s := fmt.Sprint(told); !strings.Contains(s, "no other host was found for rank 1") {
		t.Errorf("the renter was told %s", s)
	}
	w.rounds(c, "one host clean", func(c cluster.Cluster) bool { return c.Nodes[0].State == lifecycle.NodeStopped }, gone)
	w.abandon(gone)
	w.clean(c, gone)
	w.withinWindows(c)
}

// What keeps a rank waiting may pass.
func TestAHostThatComesInTimeIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(replacing(2, 1))
	w.vanish(c, 1)
	w.tick(c)
	w.addHost(2, 1)
	w.tick(c)
	c = w.rounds(c, "running", in(lifecycle.Running))
	if w.hostOf(c, 1) != w.hosts[2] || c.Epoch != 2 {
		t.Errorf("rank 1 is on %s in epoch %d", c.Nodes[1].HostName, c.Epoch)
	}
	w.one(c)
	w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
	w.rounds(c, "released", in(lifecycle.Released))
	w.clean(c)
}

// The host that took the rank fails before it started: the next one takes it. Both ranks may be lost at once.
func TestAReplacementMayBeLostToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 5, gpus: 1})
	c := w.runUp(replacing(2, 1))
	w.vanish(c, 1)
	c = w.get(c)
	second := w.hostOf(c, 1)
	w.behave(1, func(h *fakeHost, r *run) {
		if h == second && r.State == agentapi.NodeStarting {
			h.fail(r, agentapi.ReasonGPUFailed)
		}
	})
	w.rounds(c, "lost again", func(c cluster.Cluster) bool { return c.State == lifecycle.Degraded })
	w.one(c)
	w.tick(c)
	if c = w.get(c); c.State != lifecycle.Provisioning || c.Epoch != 3 || w.hostOf(c, 1) == second {
		t.Fatalf("%s, epoch %d, %s", c.State, c.Epoch, c.Detail)
	}
	c = w.rounds(c, "running", in(lifecycle.Running))
	// Now both at once.
	first, third := w.hostOf(c, 0), w.hostOf(c, 1)
	w.quiet(c, 0, time.Minute)
	w.quiet(c, 1, time.Minute)
	w.tick(c)
	w.exec("UPDATE node SET since = since - interval '10 minutes' WHERE cluster_id = $1 AND state = 'lost'", c.ID)
	w.tick(c)
	w.tick(c)
	w.one(c)
	if c = w.get(c); c.State != lifecycle.Degraded || c.Replacing == nil || len(c.Replacing.Ranks) != 2 {
		t.Fatalf("%s: %s (%+v); one host is left for two ranks", c.State, c.Detail, c.Replacing)
	}
	w.addHost(5, 1)
	w.tick(c)
	c = w.rounds(c, "running", in(lifecycle.Running), first, third)
	if w.hostOf(c, 0) == first || w.hostOf(c, 1) == third || !c.Billing {
		t.Errorf("%+v", c.Nodes)
	}
	w.one(c)
	w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
	w.rounds(c, "released", in(lifecycle.Released))
	w.clean(c)
	w.withinWindows(c)
}

// A cluster of one node is replaced too, and nothing is paid ahead while it waits.
func TestTheOnlyRankIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	c := w.runUp(replacing(1, 1))
	w.vanish(c, 0)
	w.exec("UPDATE cluster SET run_until = clock_timestamp() WHERE id = $1", c.ID) // what was paid ahead is over
	w.tick(c)
	if c = w.get(c); c.State != lifecycle.Degraded || c.Replacing == nil {
		t.Fatalf("%s %s: %s", c.State, c.Reason, c.Detail)
	}
	w.addHost(1, 1)
	w.tick(c)
	c = w.rounds(c, "running", in(lifecycle.Running))
	w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
	w.rounds(c, "released", in(lifecycle.Released))
	w.clean(c)
}

// A log that waits on a host that was lost is fetched when the host comes back, and given free.
func TestTheLogOfALostHostIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(replacing(1, 1))
	gone := w.hostOf(c, 0)
	w.vanish(c, 0)
	c = w.rounds(c, "running", in(lifecycle.Running), gone)
	w.must(gone.sync(w.ctx, 0)) // learns of the end
	for _, r := range gone.runs {
		r.LogKept = true
	}
	w.must(gone.sync(w.ctx, 0))
	w.must(gone.sync(w.ctx, 0))
	kept, err := w.clusters[0].Logs.Kept(w.ctx, 10, 10)
	w.must(err)
	if len(kept) != 1 || kept[0].Host != gone.id || kept[0].Ref.Epoch != 1 || kept[0].Node != c.Nodes[0].ID {
		t.Fatalf("kept %+v", kept)
	}
	w.must(w.clusters[0].Logs.Store(w.ctx, kept[0].Node, 1, []byte("before\n"), false))
	refs, err := w.storedLogs(gone)
	w.must(err)
	if len(refs) != 1 || refs[0] != kept[0].Ref {
		t.Errorf("acked %v, want %v", refs, kept[0].Ref)
	}
	for _, r := range gone.runs {
		r.LogKept = false
	}
	w.must(gone.sync(w.ctx, 0))
	if refs, err = w.storedLogs(gone); err != nil || len(refs) != 0 {
		t.Errorf("acked for ever: %v, %v", refs, err)
	}
	log, err := w.clusters[0].Views.Log(w.ctx, w.renter.Org, c.ID, 0)
	w.must(err)
	if len(log.Runs) != 1 || log.Live == nil || log.Live.Host == gone.id {
		t.Errorf("log %+v", log)
	}
	w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
	w.rounds(c, "released", in(lifecycle.Released))
	w.clean(c)
}

// A server that dies at any statement of a replacement leaves nothing half done: the next look goes on.
func TestAServerThatDiesAnywhereStillReplaces(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	w := newWorld(t, worldConfig{hosts: 3, gpus: 1, db: d})
	c := w.runUp(replacing(2, 1))
	gone := w.hostOf(c, 1)
	w.quiet(c, 1, time.Minute)
	w.tick(c)
	w.exec("UPDATE node SET since = since - interval '10 minutes' WHERE cluster_id = $1 AND state = 'lost'", c.ID)

	deaths := 0
	was := w.get(c)
	for n := int64(1); ; n++ {
		w.exec("UPDATE cluster SET due_at = clock_timestamp(), full_look_at = 'epoch' WHERE id = $1", c.ID)
		k.Left.Store(n)
		_, err := w.clusters[0].Watchdog.Pass(w.ctx)
		struck := k.Left.Swap(0) <= 0
		w.one(c)
		now := w.get(c)
		if now.State == lifecycle.Provisioning {
			break
		}
		if !struck {
			t.Fatalf("nothing was in the way, and it is %s: %s (%v)", now.State, now.Detail, err)
		}
		deaths++
		if now.State != was.State || (now.Replacing == nil) != (was.Replacing == nil) {
			was, n = now, 0 // a step is done: die at every statement of the next
		}
	}
	t.Logf("died %d times", deaths)
	if deaths < 20 {
		t.Errorf("died only %d times: not at every statement", deaths)
	}
	c = w.rounds(c, "running", in(lifecycle.Running), gone)
	credits, err := metering.Credits(w.ctx, w.d.Q, c.ID)
	w.must(err)
	if len(credits) != 1 || c.Epoch != 2 {
		t.Errorf("epoch %d, credited %+v", c.Epoch, credits)
	}
	w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
	w.rounds(c, "released", in(lifecycle.Released))
	w.clean(c)
}
