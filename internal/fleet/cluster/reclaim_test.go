package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/notify"
)

// reclaim takes the host of a rank back.
func (w *world) reclaim(c cluster.Cluster, rank int, notice time.Duration) id.Host {
	w.t.Helper()
	h := w.get(c).Nodes[rank].HostID
	var org id.Org
	if err := w.d.Pool.QueryRow(w.ctx, "SELECT org_id FROM host WHERE id = $1", h).Scan(&org); err != nil {
		w.t.Fatal(err)
	}
	_, _, err := host.New(w.d, nil).Act(w.ctx, account.Principal{Org: org}, h,
		host.Action{Name: host.Reclaim, Notice: int64(notice.Seconds())}, idem.Request{})
	w.must(err)
	return h
}

// losses counts the losses that count against hosts.
func (w *world) losses() (n int) {
	w.t.Helper()
	w.must(w.d.Pool.QueryRow(w.ctx, "SELECT count(*) FROM gang_strike WHERE kind = 'loss'").Scan(&n))
	return n
}

// A host that was to blame for the end of a run is not offered for an hour, so that faking a failure to rent it out
// again for more does not pay. A host that was withdrawn with notice is offered.
func TestAHostThatFailedIsNotOfferedForAnHour(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 2, relist: fairness.RelistLock})
	c := w.runUp(spec(1, 1))
	w.must(w.hostOf(c, 0).sync(w.ctx, 0))
	w.behave(0, func(h *fakeHost, r *run) {
		if r.Started && r.State == agentapi.NodeReady {
			h.fail(r, agentapi.ReasonGPUFailed)
		}
	})
	w.rounds(c, "failed", in(lifecycle.Failed))
	w.behave(0, nil)
	w.clean(c)
	w.rounds(c, "seen by the market", func(cluster.Cluster) bool {
		_, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: spec(1, 1)}, idem.Request{})
		f := fault.From(err)
		return f != nil && f.Kind == fault.NoCapacity && strings.Contains(fmt.Sprint(f.Extra["explain"]), "relist lock")
	})
	page, err := w.market.SearchOffers(w.ctx, market.OfferSearch{})
	w.must(err)
	if page.Total != 0 || page.GPUsFree != 0 || len(page.Models) != 0 {
		t.Errorf("the market lists what nobody can rent: %+v", page)
	}
	told, err := notify.List(w.ctx, w.d.Q, w.operator.Org, notify.Filter{Limit: 20})
	w.must(err)
	if s := fmt.Sprint(told); strings.Count(s, "host-0 is not offered until") != 1 {
		t.Errorf("the operator was told %s", s)
	}
	w.exec("UPDATE gang_strike SET at = at - interval '1 hour'")
	w.rounds(c, "offered again", func(cluster.Cluster) bool {
		_, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: spec(1, 1)}, idem.Request{})
		return err == nil
	})
}

// At once: the cluster ends, and what it cost in its last hour is refunded, as the operator was warned before.
func TestAHostIsTakenBackAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	w.must(w.hostOf(c, 0).sync(w.ctx, 0))
	w.must(w.hostOf(c, 1).sync(w.ctx, 0))
	h := w.get(c).Nodes[1].HostID
	f, err := metering.ForecastLoss(w.ctx, w.d.Q, h)
	if err != nil || f.Leases != 1 || f.HostPart > f.Credit {
		t.Fatalf("%+v %v", f, err)
	}
	w.reclaim(c, 1, 0)
	w.tick(c)
	_, text := w.events(c)
	if c = w.get(c); c.State != lifecycle.Failed || c.Reason != lifecycle.ReasonHostReclaimed ||
		!strings.Contains(c.Nodes[1].Detail, "at once") {
		t.Fatalf("%s %s: %s\n%s", c.State, c.Reason, c.Detail, text)
	}
	c = w.clean(c)
	credits, err := metering.Credits(w.ctx, w.d.Q, c.ID)
	if err != nil || len(credits) != 1 || credits[0].Host != h || credits[0].Amount != w.costOf(c, 1) {
		t.Errorf("%+v of %s (%v)", credits, w.costOf(c, 1), err)
	}
	if n := w.losses(); n != 1 {
		t.Errorf("%d losses count against hosts", n)
	}
	w.noClaims()
	w.ledger()
}

// With notice: the renter gets one notice, no new lease begins, what runs goes on until then, and nothing is refunded.
func TestAHostIsTakenBackWithNotice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	h := w.reclaim(c, 1, 2*time.Hour)
	w.tick(c)
	w.tick(c)
	kinds, text := w.events(c)
	if n := strings.Count(strings.Join(kinds, " "), "host_reclaim"); n != 1 ||
		!strings.Contains(text, "save what you need before") {
		t.Errorf("told %d times\n%s", n, text)
	}
	if c = w.get(c); c.State != lifecycle.Running {
		t.Fatalf("%s: %s", c.State, c.Detail)
	}
	w.exec("UPDATE host SET reclaim_at = clock_timestamp() - interval '1 second', reclaim_asked_at = clock_timestamp() "+
		"- interval '2 hours' WHERE id = $1", h)
	w.exec("UPDATE node SET reclaim_told = h.reclaim_at FROM host h WHERE h.id = host_id AND cluster_id = $1 AND "+
		"reclaim_told IS NOT NULL", c.ID)
	w.tick(c)
	_, text = w.events(c)
	if c = w.get(c); c.State != lifecycle.Failed || c.Reason != lifecycle.ReasonHostWithdrawn ||
		!strings.Contains(c.Nodes[1].Detail, "as was said at") {
		t.Fatalf("%s %s: %s\n%s", c.State, c.Reason, c.Detail, text)
	}
	c = w.clean(c)
	if credits, err := metering.Credits(w.ctx, w.d.Q, c.ID); err != nil || len(credits) != 0 {
		t.Errorf("%+v %v", credits, err)
	}
	if n := w.losses(); n != 0 {
		t.Errorf("%d losses count against hosts, after notice", n)
	}
	w.ledger()
}

// The operator takes the notice back: the renter gets a notice, and the cluster goes on.
func TestAHostIsNotTakenBackAfterAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	c := w.runUp(spec(1, 1))
	h := w.reclaim(c, 0, time.Hour)
	w.tick(c)
	var org id.Org
	if err := w.d.Pool.QueryRow(w.ctx, "SELECT org_id FROM host WHERE id = $1", h).Scan(&org); err != nil {
		t.Fatal(err)
	}
	act := func(a host.Action) error {
		_, _, err := host.New(w.d, nil).Act(w.ctx, account.Principal{Org: org}, h, a, idem.Request{})
		return err
	}
	w.must(act(host.Action{Name: host.Resume}))
	w.tick(c)
	if _, text := w.events(c); !strings.Contains(text, "does not take the machine back after all") {
		t.Error(text)
	}
	if c = w.get(c); c.State != lifecycle.Running {
		t.Errorf("%s: %s", c.State, c.Detail)
	}
	if err := act(host.Action{Name: host.Reclaim, Notice: -1}); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}

// on_node_failure: replace takes another host, never the one that is taken back.
func TestATakenBackHostIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 3, gpus: 1})
	s := spec(2, 1)
	s.OnNodeFailure = "replace"
	c := w.runUp(s)
	h := w.reclaim(c, 1, 0)
	w.tick(c)
	c = w.rounds(c, "another host has the rank", func(c cluster.Cluster) bool {
		return c.State == lifecycle.Running && c.Nodes[1].HostID != h
	})
	_ = c
	w.ledger()
}
