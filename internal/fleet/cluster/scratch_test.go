package cluster_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/notify"
)

// What a host has for scratch is never promised twice: what live leases hold is not there for others, under the locks
// that guard its GPUs, and it is there again when they have ended.
func TestScratchIsPromisedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 4})
	s := spec(1, 1)
	s.ScratchGB = 60
	refused := func(constraint string) {
		t.Helper()
		_, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s}, idem.Request{})
		var why []client.Exclusion
		if f := fault.From(err); f != nil {
			why, _ = f.Extra["explain"].([]client.Exclusion)
		}
		if !fault.Is(err, fault.NoCapacity) || len(why) != 1 || why[0].Constraint != constraint {
			t.Fatalf("%v %+v", err, why)
		}
	}
	refused("scratch_gb = 60")
	w.exec("UPDATE host SET scratch_gb = 100 WHERE id = $1", w.hosts[0].id)
	c := w.runUp(s)
	if d := w.desired(w.clusters[0], w.hosts[0].id); len(d.Leases) != 1 || d.Leases[0].ScratchGB != 60 {
		t.Errorf("%+v", d.Leases)
	}
	refused("scratch_gb = 60")
	s.ScratchGB = 40
	beside := w.runUp(s)
	for _, x := range []cluster.Cluster{c, beside} {
		if _, err := w.clusters[0].Rentals.Release(w.ctx, w.renter, x.ID); err != nil {
			t.Fatal(err)
		}
	}
	w.clean(c)
	s.ScratchGB = 60
	results := make(chan error, 4)
	for range cap(results) { // at once: one GPU is there for each, scratch for one
		go func() {
			_, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s}, idem.Request{})
			results <- err
		}()
	}
	rented := 0
	for range cap(results) {
		switch err := <-results; {
		case err == nil:
			rented++
		case fault.From(err) == nil:
			t.Error(err)
		}
	}
	if rented != 1 {
		t.Errorf("%d clusters have 60 GB each of 100", rented)
	}
}

// The operator of a host that cannot give a node its scratch, or loses it under one that runs, gets a notice once a
// day. The renter's notice says why, what it cost, and what to do.
func TestTheOperatorIsToldOfFailedScratch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	w.exec("UPDATE host SET scratch_gb = 100")
	s := spec(1, 1)
	s.ScratchGB = 60
	told := func() notify.Delivered {
		t.Helper()
		list, err := notify.List(w.ctx, w.d.Q, w.operator.Org, notify.Filter{Limit: 10})
		w.must(err)
		var about []notify.Delivered
		for _, n := range list {
			if strings.HasPrefix(n.Key, "scratch_failed:"+w.hosts[0].id.String()) {
				about = append(about, n)
			}
		}
		if len(about) != 1 || about[0].Severity != notify.Bad || about[0].Object != w.hosts[0].id.String() {
			t.Fatalf("the operator was told %+v", list)
		}
		return about[0]
	}
	w.behave(0, func(_ *fakeHost, r *run) {
		if r.State == agentapi.NodeStarting {
			r.State, r.Reason, r.Detail = agentapi.NodeFailed, agentapi.ReasonScratchFailed,
				"the host's scratch disk has become read-only"
		}
	})
	c := w.rent(s)
	c = w.rounds(c, "failed", in(lifecycle.Failed))
	for _, want := range []string{"could not give the node its scratch space", "Nothing was charged.", "Rent again",
		"has become read-only"} {
		if !strings.Contains(c.Detail, want) {
			t.Errorf("the renter reads %q, want %q", c.Detail, want)
		}
	}
	w.clean(c)
	if n := told(); !strings.Contains(n.Body, "has become read-only") || !strings.Contains(n.Body, "muster-agent doctor") {
		t.Errorf("the operator reads %+v", n)
	}

	w.exec("UPDATE notice SET dedupe_key = 'yesterday'")
	w.behave(0, nil)
	c = w.runUp(s)
	w.behave(0, func(_ *fakeHost, r *run) {
		if r.Started && r.State == agentapi.NodeReady {
			r.Good, r.Trouble, r.TroubleDetail = false, agentapi.ReasonScratchFailed,
				"the host's scratch disk has failed and was shut down by the kernel"
		}
	})
	c = w.rounds(c, "lost", func(c cluster.Cluster) bool { w.tick(c); return !c.Billing })
	if !strings.Contains(c.Detail, "or lost it") || !strings.Contains(c.Detail, "was shut down") {
		t.Errorf("the renter reads %q", c.Detail)
	}
	if n := told(); !strings.Contains(n.Body, "was shut down") {
		t.Errorf("the operator reads %+v", n)
	}
	_, err := w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)
	w.must(err)
	w.clean(c)
	told()
	w.ledger()
}
