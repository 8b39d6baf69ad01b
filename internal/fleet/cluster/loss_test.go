package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
)

// openWindow reads whether seconds count, and through when they are confirmed.
func (w *world) openWindow(c cluster.Cluster) (open bool, confirmed int64) {
	w.t.Helper()
	w.must(w.d.Pool.QueryRow(w.ctx, `SELECT closed_ms IS NULL AND limit_ms IS NULL AND doubt_from_ms IS NULL,
		confirmed_until_ms
		FROM cluster_window WHERE cluster_id = $1 ORDER BY n DESC LIMIT 1`, c.ID).Scan(&open, &confirmed))
	return open, confirmed
}

func TestASilentHostSuspendsBillingAndMayComeBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 2})
	c := w.runUp(spec(2, 2))
	w.quiet(c, 1, time.Minute)
	w.tick(c)
	c = w.get(c)
	if c.State != lifecycle.Degraded || c.Billing || c.Nodes[1].State != lifecycle.NodeLost ||
		c.Reason != lifecycle.ReasonHostLost {
		t.Fatalf("silent for a minute: %s, billing %v, node %s, %s", c.State, c.Billing, c.Nodes[1].State, c.Reason)
	}
	if open, _ := w.openWindow(c); open {
		t.Error("seconds still count")
	}
	d := c.Doubt
	if d == nil || d.Kind != "silent" || len(d.Ranks) != 1 || d.Ranks[0] != 1 || d.Until == nil ||
		!d.Until.After(d.Since) || d.Then != "end" {
		t.Fatalf("the doubt is %+v", d)
	}
	if want := fmt.Sprintf("Not billed since %s: rank 1 (host %s) does not answer. The cluster ends at %s.",
		d.Since.Format("15:04:05"), c.Nodes[1].HostName, d.Until.Format("15:04:05")); d.Why != want {
		t.Errorf("%q, want %q", d.Why, want)
	}
	w.must(w.hostOf(c, 1).sync(w.ctx, 0))
	w.must(w.hostOf(c, 0).sync(w.ctx, 0)) // receives from it, too
	c = w.get(c)
	if c.State != lifecycle.Running || !c.Billing || c.Nodes[1].State != lifecycle.NodeReady || c.Reason != "" ||
		c.Doubt != nil {
		t.Fatalf("heard of again: %s, billing %v, node %s, %q, doubt %+v", c.State, c.Billing, c.Nodes[1].State, c.Reason,
			c.Doubt)
	}
	w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
	w.rounds(c, "released", in(lifecycle.Released))
	w.clean(c)
}

func TestALostHostEndsTheCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 2})
	c := w.runUp(spec(2, 2))
	gone := w.hostOf(c, 1)
	w.quiet(c, 1, time.Minute)
	w.tick(c)
	w.exec("UPDATE node SET since = since - interval '10 minutes' WHERE cluster_id = $1 AND state = 'lost'", c.ID)
	w.tick(c)
	c = w.get(c)
	if c.State != lifecycle.Failed || c.Reason != lifecycle.ReasonHostLost {
		t.Fatalf("%s %s", c.State, c.Reason)
	}
	// The other host cleans up; the lost one's GPUs stay claimed until it is given up.
	w.rounds(c, "one host clean", func(c cluster.Cluster) bool { return c.Nodes[0].State == lifecycle.NodeStopped }, gone)
	var claimed int
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT count(*) FROM gpu_claim WHERE ended_at IS NULL AND host_id = $1",
		gone.id).Scan(&claimed))
	if claimed != 2 {
		t.Errorf("%d GPUs of the lost host are claimed, want 2", claimed)
	}
	w.abandon(gone)
	c = w.clean(c, gone)
	if w.wallet()+c.CostSoFar != 1000e9 {
		t.Errorf("cost %s, wallet %s", c.CostSoFar, w.wallet())
	}
}

func TestIgnoreGoesOnWithTheOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 3, gpus: 1})
	s := spec(3, 1)
	s.OnNodeFailure = "ignore"
	c := w.runUp(s)
	gone := w.hostOf(c, 2)
	w.quiet(c, 2, time.Minute)
	w.tick(c)
	w.exec("UPDATE node SET since = since - interval '10 minutes' WHERE cluster_id = $1 AND state = 'lost'", c.ID)
	w.tick(c)
	c = w.get(c)
	if c.State != lifecycle.Degraded || !c.Billing || c.Nodes[2].Required || c.Nodes[2].State != lifecycle.NodeLost {
		t.Fatalf("%s, billing %v, node %+v", c.State, c.Billing, c.Nodes[2])
	}
	// Ranks no longer have it as a peer. When its host comes back, its desired state says to stop.
	w.must(w.hostOf(c, 0).sync(w.ctx, 0))
	if n := len(w.hostOf(c, 0).desired.Leases[0].Network.Peers); n != 1 {
		t.Errorf("rank 0 has %d peers, want 1", n)
	}
	w.must(gone.sync(w.ctx, 0))
	if len(gone.desired.Leases) != 0 {
		t.Error("the lost host is still told to run it")
	}
	for rank := range 2 {
		w.behave(rank, func(h *fakeHost, r *run) {
			if r.ExitCode == nil {
				h.exit(r, 0)
			}
		})
	}
	c = w.rounds(c, "released", in(lifecycle.Released))
	if c.Reason != lifecycle.ReasonCompleted {
		t.Errorf("ended with %s", c.Reason)
	}
	w.clean(c)
}

// One rank's claim alone suspends nothing. When both ends claim it the cluster is suspended, and no rank is lost by it.
func TestRanksThatDoNotHearEachOtherSuspend(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 3, gpus: 1})
	c := w.runUp(spec(3, 1))
	w.behave(0, func(_ *fakeHost, r *run) { r.PeersDown = []int{2, 2, -1} })
	w.must(w.hostOf(c, 0).sync(w.ctx, 0))
	w.tick(c)
	if c = w.get(c); c.State != lifecycle.Running || !c.Billing {
		t.Fatalf("one voice: %s, billing %v", c.State, c.Billing)
	}
	w.behave(2, func(_ *fakeHost, r *run) { r.PeersDown = []int{0} })
	w.must(w.hostOf(c, 2).sync(w.ctx, 0))
	c = w.get(c)
	if c.State != lifecycle.Degraded || c.Billing || c.Reason != lifecycle.ReasonPeersUnreachable ||
		c.Nodes[0].State != lifecycle.NodeReady || c.Nodes[2].State != lifecycle.NodeReady {
		t.Fatalf("both: %s %s, billing %v, nodes %+v", c.State, c.Reason, c.Billing, c.Nodes)
	}
	w.behave(0, func(_ *fakeHost, r *run) { r.PeersDown = nil })
	w.must(w.hostOf(c, 0).sync(w.ctx, 0))
	if c = w.get(c); c.State != lifecycle.Running || !c.Billing {
		t.Fatalf("heard again: %s, billing %v", c.State, c.Billing)
	}
}

// A host that receives nothing from any rank is named by the pairs that both ends claim. The others are not blamed for
// them, whichever report comes first.
func TestADeafHostCondemnsNobody(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		heard     [3]bool // whether this rank still receives from rank 1
		order     []int
		suspended bool
	}{
		{"it is heard first", [3]bool{}, []int{1, 0, 2}, true},
		{"it is heard last", [3]bool{}, []int{2, 0, 1}, true},
		{"it is still heard by all", [3]bool{true, true, true}, []int{0, 1, 2}, false},
		{"it is still heard by one", [3]bool{true, true, false}, []int{1, 2, 0}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldConfig{hosts: 3, gpus: 1})
			c := w.runUp(spec(3, 1))
			for rank := range 3 {
				w.behave(rank, func(_ *fakeHost, r *run) {
					switch {
					case rank == 1:
						r.PeersDown = []int{0, 2}
					case !tc.heard[rank]:
						r.PeersDown = []int{1}
					}
				})
			}
			for _, rank := range tc.order {
				w.must(w.hostOf(c, rank).sync(w.ctx, 0))
			}
			w.tick(c)
			c = w.get(c)
			for rank := range 3 {
				if c.Nodes[rank].State != lifecycle.NodeReady {
					t.Errorf("rank %d is %s: %s", rank, c.Nodes[rank].State, c.Nodes[rank].Detail)
				}
			}
			if c.Billing == tc.suspended || (c.State == lifecycle.Degraded) != tc.suspended {
				t.Errorf("%s, billing %v", c.State, c.Billing)
			}
		})
	}
}

func TestANodeThatIsNotWellSuspends(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	c := w.runUp(spec(1, 1))
	w.behave(0, func(_ *fakeHost, r *run) { r.Good = false })
	w.rounds(c, "degraded", in(lifecycle.Degraded))
	w.behave(0, func(_ *fakeHost, r *run) { r.Good = true })
	c = w.rounds(c, "running", in(lifecycle.Running))
	if !c.Billing {
		t.Error("not billed again")
	}
}

func TestAHostsTroubleEndsARunningCluster(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{agentapi.ReasonGPUFailed, agentapi.ReasonHostInterrupted, agentapi.ReasonGuestDied,
		agentapi.ReasonOverlayFailed} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
			c := w.runUp(spec(2, 1))
			w.behave(1, func(h *fakeHost, r *run) {
				if r.State == agentapi.NodeReady {
					h.fail(r, reason)
				}
			})
			c = w.rounds(c, "failed", in(lifecycle.Failed))
			if string(c.Reason) != reason || c.Nodes[1].State != lifecycle.NodeFailed {
				t.Errorf("failed with %s, node %+v", c.Reason, c.Nodes[1])
			}
			w.clean(c)
		})
	}
}

// TestADeadHostIsNotBlamedOnTheCommand: when a host dies, its peers' commands fail within a moment.
func TestADeadHostIsNotBlamedOnTheCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	w.behave(0, func(h *fakeHost, r *run) {
		if r.ExitCode == nil {
			h.exit(r, 1)
		}
	})
	w.must(w.hostOf(c, 0).sync(w.ctx, 0))
	if c = w.get(c); c.State != lifecycle.Running || c.Nodes[0].ExitCode == nil {
		t.Fatalf("before the other was heard of: %s, exit %v", c.State, c.Nodes[0].ExitCode)
	}
	w.quiet(c, 1, time.Minute)
	w.tick(c)
	w.exec("UPDATE node SET since = since - interval '10 minutes' WHERE cluster_id = $1 AND state = 'lost'", c.ID)
	w.tick(c)
	if c = w.get(c); c.State != lifecycle.Failed || c.Reason != lifecycle.ReasonHostLost {
		t.Fatalf("%s %s", c.State, c.Reason)
	}
}

func TestARebootedHostFailsItsNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	w.hostOf(c, 1).reboot()
	c = w.rounds(c, "failed", in(lifecycle.Failed))
	if c.Reason != lifecycle.ReasonHostInterrupted {
		t.Errorf("failed with %s", c.Reason)
	}
	w.rounds(c, "looked at", func(cluster.Cluster) bool { w.tick(c); return true })
	w.deadline(c) // its journal of the time before might still come
	w.clean(c)
}

func TestReportsThatComeLateTwiceOrFromElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.rent(spec(2, 1))
	h := w.hostOf(c, 0)
	var old []agentapi.Sync
	c = w.rounds(c, "running", func(c cluster.Cluster) bool {
		old = append(old, h.last)
		return c.State == lifecycle.Running
	})
	events := func() int {
		ev, err := w.clusters[0].Views.Events(w.ctx, w.renter.Org, c.ID, 0, 1000)
		w.must(err)
		return len(ev)
	}
	before := events()
	// Every earlier report again, newest first, twice.
	slices.Reverse(old)
	for range 2 {
		for _, s := range old {
			w.must(w.clusters[0].Hosts.ApplyReport(w.ctx, h.id, s, nil))
		}
	}
	// A report of the other host's lease, and of an epoch that never was.
	foreign := h.last
	other := w.hostOf(c, 1)
	foreign.BootMS++
	foreign.Leases = []agentapi.LeaseStatus{{
		LeaseRef: other.desired.Leases[0].LeaseRef,
		State:    agentapi.NodeFailed,
		Reason:   agentapi.ReasonGPUFailed,
	}}
	w.must(w.clusters[0].Hosts.ApplyReport(w.ctx, h.id, foreign, nil))
	ahead := h.last
	ahead.BootMS += 2
	ahead.Leases = slices.Clone(h.last.Leases)
	ahead.Leases[0].Epoch, ahead.Leases[0].State, ahead.Leases[0].Reason = 2, agentapi.NodeFailed, agentapi.ReasonGPUFailed
	w.must(w.clusters[0].Hosts.ApplyReport(w.ctx, h.id, ahead, nil))
	garbage := h.last
	garbage.BootMS += 3
	garbage.Leases = []agentapi.LeaseStatus{{LeaseRef: agentapi.LeaseRef{Lease: "ls_\x00nonsense"}}, {}}
	w.must(w.clusters[0].Hosts.ApplyReport(w.ctx, h.id, garbage, nil))
	if got := w.get(c); got.State != lifecycle.Running || !got.Billing || events() != before {
		t.Fatalf("changed to %s; %d events, were %d", got.State, events(), before)
	}
	w.must(errOf(w.clusters[0].Rentals.Restart(w.ctx, w.renter, c.ID)))
	// The old epoch's failure does not touch the new start.
	late := h.last
	late.BootMS = h.bootMS()
	late.Leases = slices.Clone(h.last.Leases)
	late.Leases[0].State, late.Leases[0].Reason, late.Leases[0].Good = agentapi.NodeFailed, agentapi.ReasonGPUFailed, false
	w.must(w.clusters[0].Hosts.ApplyReport(w.ctx, h.id, late, nil))
	c = w.rounds(c, "running again", in(lifecycle.Running))
	w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
	w.rounds(c, "released", in(lifecycle.Released))
	// A full report made before the host knew of a lease does not free it.
	c2 := w.rent(spec(2, 1))
	h2 := w.hostOf(c2, 0)
	w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c2.ID)))
	stale := h2.last
	stale.BootMS, stale.Full, stale.Leases = h2.bootMS(), true, nil
	w.must(w.clusters[0].Hosts.ApplyReport(w.ctx, h2.id, stale, nil))
	var claimed int
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT count(*) FROM gpu_claim WHERE ended_at IS NULL").Scan(&claimed))
	if claimed != 2 {
		t.Errorf("%d claims after a report that could not know, want 2", claimed)
	}
	w.rounds(c2, "released", in(lifecycle.Released))
	w.clean(c2)
}

func TestAnAbandonedHostFreesItsCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	c := w.runUp(spec(1, 1))
	w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
	w.tick(c)
	if got := w.get(c); got.State != lifecycle.Releasing {
		t.Fatalf("%s though the host has not answered", got.State)
	}
	w.abandon(w.hosts[0])
	w.tick(c)
	if got := w.get(c); got.State != lifecycle.Released || got.Nodes[0].State != lifecycle.NodeStopped {
		t.Fatalf("%s, node %s after its host was given up", got.State, got.Nodes[0].State)
	}
	w.noClaims()
	w.ledger()
}

// A rank whose end is known but not yet taken in must not pass for lost: the others' reports come in between, and the
// time since its last good report would be forfeited.
func TestAnEndBeingHeardIsNoLoss(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 2})
	c := w.runUp(spec(2, 2))
	done := func(h *fakeHost, r *run) {
		if r.Started && r.ExitCode == nil {
			h.exit(r, 0)
		}
	}
	w.behave(0, done)
	w.behave(1, done)
	first, second := w.hostOf(c, 0), w.hostOf(c, 1)

	// The first host's report is written down and then has to wait for the cluster, until its sender gives up.
	tx, err := w.d.Pool.Begin(w.ctx)
	w.must(err)
	_, err = tx.Exec(w.ctx, "SELECT FROM cluster WHERE id = $1 FOR UPDATE", c.ID)
	w.must(err)
	const waiting = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
	ctx, giveUp := context.WithCancel(w.ctx)
	sent := make(chan error, 1)
	go func() { sent <- first.sync(ctx, 0) }()
	for n := 0; n == 0; {
		w.must(w.d.Pool.QueryRow(w.ctx, waiting).Scan(&n))
	}
	giveUp()
	if err := <-sent; err == nil {
		t.Fatal("the report went through")
	}
	w.must(tx.Rollback(w.ctx))

	w.must(second.sync(w.ctx, 0))
	if c = w.get(c); c.State != lifecycle.Running || !c.Billing {
		t.Fatalf("%s, billing %v: %s", c.State, c.Billing, c.Detail)
	}
	c = w.rounds(c, "released", in(lifecycle.Released))
	if c.Reason != lifecycle.ReasonCompleted {
		t.Errorf("%s: %s", c.Reason, c.Detail)
	}
	if open, end := w.openWindow(c); open || end <= c.RunningAt.UnixMilli() {
		t.Errorf("open %v, billed to %d of a run from %d", open, end, c.RunningAt.UnixMilli())
	}
	w.clean(c)
}
