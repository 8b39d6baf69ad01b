package cluster_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func (w *world) wallet() money.Nano {
	w.t.Helper()
	b, err := ledger.Balance(w.ctx, w.d.Q, ledger.Wallet(w.renter.Org, usd))
	w.must(err)
	return b
}

func TestARentalFromRentToTheLastSecond(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 4, replicas: 2})
	before := w.wallet()
	c := w.rent(spec(2, 4))
	if c.State != lifecycle.Provisioning || len(c.Nodes) != 2 || c.Nodes[0].HostID == c.Nodes[1].HostID ||
		len(c.Nodes[0].GPUs) != 4 {
		t.Fatalf("rented %+v", c)
	}
	if c.Spec.Env["TOKEN"] != market.Mask {
		t.Errorf("the environment is shown: %v", c.Spec.Env)
	}
	if c.Nodes[1].Address != "10.77.0.2" || c.Network.CIDR != "10.77.0.0/20" {
		t.Errorf("network %+v, rank 1 at %s", c.Network, c.Nodes[1].Address)
	}

	seen := map[lifecycle.NodeState]bool{}
	c = w.rounds(c, "running", func(c cluster.Cluster) bool {
		for _, n := range c.Nodes {
			seen[n.State] = true
		}
		if c.State != lifecycle.Running && (c.CostSoFar != 0 || c.Billing) {
			t.Errorf("billed while %s: %s", c.State, c.CostSoFar)
		}
		return c.State == lifecycle.Running
	})
	for _, s := range []lifecycle.NodeState{lifecycle.NodePulling, lifecycle.NodeStarting, lifecycle.NodeJoining,
		lifecycle.NodeReady} {
		if !seen[s] {
			t.Errorf("no node was ever seen %s", s)
		}
	}
	if !c.Billing || c.RunningAt == nil || c.Network.BusbwGbps != 10 ||
		!slices.Contains(c.Actions, cluster.ActionRelease) {
		t.Errorf("running, but %+v", c)
	}
	var up float64
	if err := w.d.Pool.QueryRow(t.Context(), "SELECT net_up_mbps FROM host_status WHERE host_id = $1",
		c.Nodes[0].HostID).Scan(&up); err != nil || up != 10_000 {
		t.Errorf("the preflight's figure is not the host's: %v, %v", up, err)
	}
	h := w.hostOf(c, 0)
	d := h.desired.Leases[0]
	if d.Env["TOKEN"] != "secret-of-the-renter" || !d.Go || d.RunUntilMS == 0 || len(d.Network.Peers) != 1 ||
		d.Network.Peers[0].Key == "" {
		t.Errorf("the host is told %+v", d)
	}

	for range 3 {
		w.rounds(c, "billed", func(c cluster.Cluster) bool { return true })
	}
	w.tick(c)
	rel, err := w.clusters[1].Rentals.Release(w.ctx, w.renter, c.ID)
	w.must(err)
	if rel.State != lifecycle.Releasing || rel.Reason != lifecycle.ReasonReleasedByUser || rel.Billing {
		t.Fatalf("released: %s %s", rel.State, rel.Reason)
	}
	if trail, err := audit.List(w.ctx, w.d.Q, w.renter.Org, id.Audit{}, 1); err != nil || len(trail) != 1 ||
		trail[0].Action != "cluster.release" ||
		trail[0].Object != c.ID.String() || trail[0].User != w.renter.User {
		t.Errorf("the trail of the release: %+v, %v", trail, err)
	}
	w.rounds(c, "released", in(lifecycle.Released))
	got := w.clean(c)
	again, err := w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)
	w.must(err)
	if again.State != lifecycle.Released || again.Reason != lifecycle.ReasonReleasedByUser {
		t.Errorf("released again: %s %s", again.State, again.Reason)
	}
	if got.CostSoFar <= 0 || before-w.wallet() != got.CostSoFar {
		t.Errorf("cost %s, but the wallet fell by %s", got.CostSoFar, before-w.wallet())
	}
	var kinds []string
	events, err := w.clusters[0].Views.Events(w.ctx, w.renter.Org, c.ID, 0, 100)
	w.must(err)
	for _, e := range events {
		if e.Rank == nil {
			kinds = append(kinds, e.Kind)
		}
	}
	want := []string{"rented", "all_at_barrier", "all_started", "release", "all_gone"}
	if !slices.Equal(kinds, want) {
		t.Errorf("timeline %v, want %v", kinds, want)
	}
}

func TestAStartThatFailsIsFree(t *testing.T) {
	t.Parallel()
	for i, reason := range []string{
		agentapi.ReasonImageNotFound, agentapi.ReasonImageUnauthorized, agentapi.ReasonImageRefused, agentapi.ReasonNoDisk,
		agentapi.ReasonImageTooBig, agentapi.ReasonImageWrongArch, agentapi.ReasonImageNewerCUDA, agentapi.ReasonRegistryAway,
		agentapi.ReasonRegistrySlow,
		agentapi.ReasonCommandNotFound, agentapi.ReasonPreflightFailed, agentapi.ReasonHostInterrupted,
		agentapi.ReasonGPUFailed, agentapi.ReasonGPUInUse,
		agentapi.ReasonRuntimeFailed, agentapi.ReasonScratchFailed, agentapi.ReasonOverlayFailed, agentapi.ReasonGuestDied,
	} {
		phase := []agentapi.NodeState{agentapi.NodePulling, agentapi.NodeStarting, agentapi.NodeJoining}[i%3]
		t.Run(reason+" while "+string(phase), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldConfig{hosts: 2, gpus: 2})
			before := w.wallet()
			w.behave(1, func(h *fakeHost, r *run) {
				if r.State == phase {
					h.fail(r, reason)
					r.Detail = "what the registry said\x00"
				}
			})
			c := w.rounds(w.rent(spec(2, 2)), "failed", in(lifecycle.Failed))
			if string(c.Reason) != reason || c.Detail == "" || c.RunningAt != nil || c.EndedAt == nil {
				t.Errorf("failed with %s: %s", c.Reason, c.Detail)
			}
			if w.clean(c); w.wallet() != before {
				t.Errorf("a failed start cost %s", before-w.wallet())
			}
		})
	}
}

func TestABadPreflightKeepsTheBarrierShut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	w.behave(0, func(h *fakeHost, r *run) {
		if r.AtBarrier {
			r.Preflight = &agentapi.Preflight{Detail: "rank 1 answers at 0.1 Gbit/s"}
		}
	})
	c := w.rounds(w.rent(spec(2, 1)), "failed", in(lifecycle.Failed))
	if c.Reason != lifecycle.ReasonPreflightFailed {
		t.Errorf("failed with %s", c.Reason)
	}
	w.clean(c)
}

// The others wait for a node that dies while they measure and that its host starts again: the timeline says what died,
// the others get no address for it, and the barrier stays shut until it is back.
func TestANodeThatDiesWhileOthersMeasureIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	var measured, dies bool // by what this goroutine lets the hosts do
	w.behave(0, func(h *fakeHost, r *run) {
		if !measured && r.AtBarrier {
			r.State, r.AtBarrier, r.Preflight = agentapi.NodeJoining, false, nil
		}
	})
	w.behave(1, func(h *fakeHost, r *run) {
		switch {
		case dies:
			dies = false
			r.State, r.AtBarrier, r.WGKey, r.Endpoints = agentapi.NodeStarting, false, "", nil
			r.StartsAgain, r.Trouble, r.TroubleDetail = true, agentapi.ReasonGuestDied,
				"the container that holds the node's network ended"
		case r.WGKey != "":
			r.StartsAgain, r.Trouble, r.TroubleDetail = false, "", ""
		}
	})
	c := w.rounds(w.rent(spec(2, 1)), "rank 1 ready",
		func(c cluster.Cluster) bool { return c.Nodes[1].State == lifecycle.NodeReady })
	dies = true
	w.must(w.hostOf(c, 1).sync(t.Context(), 0))
	if c = w.get(c); c.Nodes[1].State != lifecycle.NodeStarting {
		t.Errorf("rank 1 is %s", c.Nodes[1].State)
	}
	w.must(w.hostOf(c, 0).sync(t.Context(), 0))
	if p := w.hostOf(c, 0).desired.Leases[0].Network.Peers[0]; p.Key != "" || len(p.Endpoints) > 0 {
		t.Errorf("rank 0 is still told where rank 1 was: %+v", p)
	}
	if _, text := w.events(c); !strings.Contains(text, "Rank 1: starting again") ||
		!strings.Contains(text, "network holder ended unexpectedly. (the container that holds") {
		t.Errorf("the timeline does not say what died:\n%s", text)
	}
	measured = true
	c = w.rounds(c, "running", in(lifecycle.Running))
	if c.Epoch != 1 {
		t.Errorf("it runs in epoch %d", c.Epoch)
	}
	_, err := w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)
	w.must(err)
	w.clean(c)
}

func TestExitCodesEndACluster(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		codes  [2]int
		state  lifecycle.State
		reason lifecycle.Reason
	}{
		{"all 0", [2]int{0, 0}, lifecycle.Released, lifecycle.ReasonCompleted},
		{"one fails", [2]int{0, 7}, lifecycle.Failed, lifecycle.ReasonWorkloadFailed},
		{"both fail", [2]int{1, 2}, lifecycle.Failed, lifecycle.ReasonWorkloadFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
			before := w.wallet()
			c := w.runUp(spec(2, 1))
			for rank, code := range tc.codes {
				w.behave(rank, func(h *fakeHost, r *run) {
					if r.Started && r.ExitCode == nil {
						h.exit(r, code)
					}
				})
			}
			c = w.rounds(c, string(tc.state), in(tc.state))
			if c.Reason != tc.reason {
				t.Errorf("%s with %s: %s", c.State, c.Reason, c.Detail)
			}
			for rank, code := range tc.codes {
				if x := c.Nodes[rank].ExitCode; x == nil || *x != code {
					t.Errorf("rank %d exit code %v, want %d", rank, x, code)
				}
			}
			c = w.clean(c)
			if before-w.wallet() != c.CostSoFar {
				t.Errorf("cost %s, the wallet fell by %s", c.CostSoFar, before-w.wallet())
			}
		})
	}
}

func TestACommandThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	w.behave(0, func(h *fakeHost, r *run) {
		if r.Started && r.ExitCode == nil {
			h.exit(r, 0)
		}
	})
	c := w.rounds(w.rent(spec(1, 1)), "released", in(lifecycle.Released))
	if c.Reason != lifecycle.ReasonCompleted {
		t.Errorf("ended with %s", c.Reason)
	}
	w.clean(c)
}

func TestRestartOnFailureStartsANewEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	s := spec(2, 1)
	s.Restart = "on_failure"
	c := w.runUp(s)
	w.behave(1, func(h *fakeHost, r *run) {
		if r.Epoch == 1 && r.Started && r.ExitCode == nil {
			h.exit(r, 1)
		}
	})
	c = w.rounds(c, "started again", func(c cluster.Cluster) bool { return c.Epoch == 2 && c.State == lifecycle.Running })
	if !c.Billing || c.Nodes[1].ExitCode != nil {
		t.Errorf("after the restart: %+v", c)
	}
	var windows int
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT count(*) FROM cluster_window WHERE cluster_id = $1", c.ID).Scan(&windows))
	if windows != 2 {
		t.Errorf("%d windows: want one per start", windows)
	}
	_, err := w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)
	w.must(err)
	w.rounds(c, "released", in(lifecycle.Released))
	w.clean(c)
}

func TestACommandThatCannotWorkIsNotStartedForEver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	s := spec(1, 1)
	s.Restart = "on_failure"
	w.behave(0, func(h *fakeHost, r *run) {
		if r.Started && r.ExitCode == nil {
			h.exit(r, 1)
		}
	})
	c := w.rent(s)
	for range 4 {
		c = w.rounds(c, "at a later epoch or failed", func(now cluster.Cluster) bool {
			return now.Epoch > c.Epoch ||
				now.State.Final()
		})
	}
	c = w.rounds(c, "failed", in(lifecycle.Failed))
	if c.Reason != lifecycle.ReasonWorkloadFailed || c.Epoch != 6 {
		t.Errorf("%s at epoch %d", c.Reason, c.Epoch)
	}
	w.clean(c)
}

func TestTheRenterRestarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	c := w.runUp(spec(1, 1))
	re, err := w.clusters[0].Rentals.Restart(w.ctx, w.renter, c.ID)
	w.must(err)
	if re.State != lifecycle.Provisioning || re.Epoch != 2 || re.Billing {
		t.Fatalf("restarted: %s, epoch %d, billing %v", re.State, re.Epoch, re.Billing)
	}
	if _, err := w.clusters[0].Rentals.Restart(w.ctx, w.renter, c.ID); err == nil {
		t.Error("restarted while it was starting")
	}
	c = w.rounds(c, "running", in(lifecycle.Running))
	w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
	w.rounds(c, "released", in(lifecycle.Released))
	w.clean(c)
}

func errOf(_ cluster.Cluster, err error) error { return err }

func TestReleaseDuringTheStartIsFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	before := w.wallet()
	for _, state := range []lifecycle.NodeState{lifecycle.NodePending, lifecycle.NodePulling, lifecycle.NodeJoining,
		lifecycle.NodeReady} {
		c := w.rent(spec(2, 1))
		if state != lifecycle.NodePending {
			w.rounds(c, string(state), func(c cluster.Cluster) bool { return c.Nodes[0].State == state })
		}
		w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
		c = w.rounds(c, "released", func(c cluster.Cluster) bool { return c.State == lifecycle.Released })
		w.clean(c)
		if w.wallet() != before {
			t.Errorf("released while %s: cost %s", state, before-w.wallet())
		}
	}
}

func TestANewHostMayBeSlowButNotForEver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.rent(spec(2, 1))
	w.behave(1, func(_ *fakeHost, r *run) { r.State = agentapi.NodePulling })
	w.rounds(c, "pulling", func(c cluster.Cluster) bool { return c.Nodes[0].State == lifecycle.NodeJoining })
	w.exec("UPDATE cluster SET start_deadline = clock_timestamp() WHERE id = $1", c.ID)
	w.tick(c)
	c = w.get(c)
	if c.State != lifecycle.Failed || c.Reason != lifecycle.ReasonTimeout {
		t.Fatalf("%s %s", c.State, c.Reason)
	}
	w.clean(c)
}

func TestWaitAnswersWhenTheStateIsReached(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	c := w.runUp(spec(1, 1))
	got, err := w.clusters[0].Views.Wait(w.ctx, w.renter.Org, c.ID, lifecycle.Running, time.Minute)
	w.must(err)
	if got.State != lifecycle.Running {
		t.Errorf("waited for running, got %s", got.State)
	}
	got, err = w.clusters[0].Views.Wait(w.ctx, w.renter.Org, c.ID, lifecycle.Degraded, 0)
	w.must(err)
	if got.State != lifecycle.Running {
		t.Errorf("timed out with %s", got.State)
	}
}

// A command that has ended is not billed while the platform does not know of its end: the time until the report, or an
// outage in between, costs nothing. A rank that is done earlier is billed until the last one is.
func TestAnEndCountsFromWhenItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	w.exec("UPDATE node SET started_at = started_at - interval '1 hour' WHERE cluster_id = $1", c.ID)
	w.exec("UPDATE cluster_window SET opened_ms = opened_ms - 3600000, confirmed_until_ms = confirmed_until_ms - "+
		"3600000 WHERE cluster_id = $1", c.ID)
	for rank, ago := range []time.Duration{4 * time.Minute, 2 * time.Minute} {
		w.behave(rank, func(h *fakeHost, r *run) {
			if r.Started && r.ExitCode == nil {
				h.exit(r, 0)
				r.ExitBootMS = h.bootMS() - ago.Milliseconds()
			}
		})
	}
	c = w.rounds(c, "released", in(lifecycle.Released))
	_, end := w.openWindow(c)
	var now int64
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint").Scan(&now))
	if ago := time.Duration(now-end) * time.Millisecond; ago < 2*time.Minute || ago > 3*time.Minute {
		t.Errorf("billed through %s ago, want 2 minutes", ago)
	}
}

// A run whose last rank ends while its host is silent is billed through the end of that rank, and not until a server
// learns of it.
func TestDoubtEndsWithTheRun(t *testing.T) {
	t.Parallel()
	const most, silent, ago = 3 * time.Second, 4 * time.Second, 500 * time.Millisecond
	for name, seen := range map[string]bool{"a server looked meanwhile": true, "no server looked": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldConfig{hosts: 2, gpus: 1, lostAfter: most})
			c := w.runUp(spec(2, 1))
			for i, h := range w.hosts {
				w.must(h.sync(w.ctx, i))
			}
			from := time.Now()
			w.behave(0, func(h *fakeHost, r *run) {
				if r.Started && r.ExitCode == nil {
					h.exit(r, 0)
				}
			})
			w.must(w.hostOf(c, 0).sync(w.ctx, 0))
			<-time.After(silent - time.Since(from))
			if seen {
				w.tick(c)
			}
			w.behave(1, func(h *fakeHost, r *run) {
				if r.Started && r.ExitCode == nil {
					h.exit(r, 0)
					r.ExitBootMS = h.bootMS() - ago.Milliseconds()
				}
			})
			c = w.clean(w.rounds(c, "released", in(lifecycle.Released)))
			var billed, ran int64
			w.must(w.d.Pool.QueryRow(w.ctx, `SELECT sum(closed_ms - opened_ms)::bigint,
				(SELECT extract(epoch FROM max(exit_at) - max(started_at)) * 1000 FROM node WHERE cluster_id = $1)::bigint
				FROM cluster_window WHERE cluster_id = $1`, c.ID).Scan(&billed, &ran))
			if ran < most.Milliseconds() || billed < ran-1 || billed > ran+1 {
				t.Errorf("%d ms are billed, the command ran for %d ms", billed, ran)
			}
		})
	}
}

// A start that fails on one rank after the barrier was opened is free. What another rank has proven meanwhile is
// accepted, so no one gets an alert about refused usage.
func TestARankThatStartedUnheardIsNotRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.rent(spec(2, 1))
	w.behave(0, func(_ *fakeHost, r *run) {
		if r.Started {
			r.Started, r.Good, r.State, r.Reason = false, false, agentapi.NodeFailed, agentapi.ReasonRuntimeFailed
		}
	})
	at := func(h *fakeHost) (open bool, rank int) {
		for _, l := range h.desired.Leases {
			open, rank = l.Go, l.Rank
		}
		return open, rank
	}
	for range 40 {
		for i, h := range w.hosts {
			if open, _ := at(h); !open {
				w.must(h.sync(w.ctx, i))
			}
		}
	}
	var failing, started *fakeHost
	for _, h := range w.hosts {
		if _, rank := at(h); rank == 0 {
			failing = h
		} else {
			started = h
		}
	}
	started.mu.Lock()
	started.reconcile() // takes the order
	started.reconcile() // follows it
	started.mu.Unlock()
	for range 3 {
		w.must(failing.sync(w.ctx, 0))
	}
	c = w.rounds(c, "failed", in(lifecycle.Failed))
	if c.Reason != lifecycle.ReasonRuntimeFailed {
		t.Errorf("%s: %s", c.Reason, c.Detail)
	}
	w.clean(c)
	var posted, segments int64
	w.must(w.d.Pool.QueryRow(w.ctx, `SELECT (SELECT sum(m.posted) FROM lease_meter m JOIN lease l ON l.id = m.lease_id
		WHERE l.cluster_id = $1),
		(SELECT count(*) FROM usage_segment s JOIN lease l ON l.id = s.lease_id WHERE l.cluster_id =
		$1)`, c.ID).Scan(&posted, &segments))
	if posted != 0 || segments == 0 {
		t.Errorf("%d posted, %d segments taken in", posted, segments)
	}
}

// What ran between the opening of the barrier and an unreported end is billed by what the hosts prove of it, as when an
// agent is killed while a short job runs: the report of the start comes together with that of the end.
func TestARunThatEndedUnheardIsBilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.rent(spec(2, 1))
	barrier := func(h *fakeHost) (open bool) {
		for _, l := range h.desired.Leases {
			open = open || l.Go
		}
		return open
	}
	for range 40 {
		for i, h := range w.hosts {
			if !barrier(h) {
				w.must(h.sync(w.ctx, i))
			}
		}
	}
	var from, till int64 // of both ranks, on the server's clock
	for _, h := range w.hosts {
		h.mu.Lock()
		h.reconcile() // takes the order
		h.reconcile() // follows it
		for _, r := range h.runs {
			if !r.Started {
				t.Fatalf("the barrier is not open: %+v", r.LeaseStatus)
			}
			from, r.StartBootMS = max(from, r.endMS), h.anchor.BootMS+r.endMS-h.anchor.ServerMS
		}
		h.mu.Unlock()
	}
	for _, h := range w.hosts {
		h.mu.Lock()
		for ran := h.serverMS(); h.serverMS() < ran+50; {
			runtime.Gosched()
		}
		for _, r := range h.runs {
			h.prove(r, true)
			code := 0
			r.State, r.Reason, r.ExitCode, r.Good = agentapi.NodeStopped, agentapi.ReasonExited, &code, false
			till, r.ExitBootMS = max(till, r.endMS), h.anchor.BootMS+r.endMS-h.anchor.ServerMS
		}
		h.mu.Unlock()
	}
	for now := int64(0); now <= till; { // a host's clock may be some ms ahead of PostgreSQL's
		w.must(w.d.Pool.QueryRow(w.ctx, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").Scan(&now))
	}
	for _, h := range w.hosts {
		h.mu.Lock()
		s := h.report()
		h.mu.Unlock()
		// as if it was long on its way: a quicker one would make a new anchor
		s.BootMS = s.Leases[0].ExitBootMS
		w.must(h.send(w.ctx, 0, s))
	}
	c = w.rounds(c, "released", in(lifecycle.Released))
	if c.Reason != lifecycle.ReasonCompleted {
		t.Errorf("%s: %s", c.Reason, c.Detail)
	}
	w.clean(c)
	var opened, closed int64
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT opened_ms, closed_ms FROM cluster_window WHERE cluster_id = $1 AND n = 1",
		c.ID).Scan(&opened, &closed))
	// Through two readings of the clocks: off by one at most.
	if opened < from-1 || opened > from+1 || closed < till-1 || closed > till+1 {
		t.Errorf("it ran from %d to %d, the window is %d to %d", from, till, opened, closed)
	}
}
