package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/fleettest"
	"github.com/musterhq/muster/internal/testing/fleettest/markettest"
)

// rails is the inventory of host n with InfiniBand ports that it lends.
func rails(n int, isolation string) agentapi.Inventory {
	inv := inventory(n, 2)
	inv.RDMA = &agentapi.RDMA{Gbps: 400, Rails: 1, Isolation: isolation, Link: agentapi.LinkInfiniBand}
	return inv
}

func (w *world) report(h *fakeHost, inv agentapi.Inventory) {
	w.t.Helper()
	w.tx(func(ctx context.Context, tx *db.Tx) error { return fleettest.RecordInventory(ctx, tx, h.id, inv) })
}

func (w *world) rentRDMA(who account.Principal) (cluster.Cluster, error) {
	s := spec(2, 2)
	s.Network = market.Network{Scope: market.ScopeFabric, Fabric: agentapi.FabricRDMA}
	c, _, err := w.clusters[0].Rentals.Rent(w.ctx, who, cluster.RentRequest{Spec: s}, idem.Request{})
	return c, err
}

// partitions returns the partition that each node's host is asked for, "" for none.
func (w *world) partitions(c cluster.Cluster) (out []string) {
	w.t.Helper()
	for rank := range c.Nodes {
		text := ""
		for _, l := range w.desired(w.clusters[0], w.hostOf(c, rank).id).Leases {
			if l.Network.Fabric != agentapi.FabricRDMA {
				w.t.Errorf("rank %d gets no RDMA", rank)
			}
			if p := l.Network.Partition; p != nil {
				text = fmt.Sprintf("%s %s %#x", p.Fabric, p.Cluster, p.PKey)
			}
		}
		out = append(out, text)
	}
	return out
}

// isolation returns what the offers say of their RDMA network, each text once.
func (w *world) isolation() (out []string) {
	w.t.Helper()
	now := markettest.New(w.World, market.Config{MaxAge: time.Nanosecond}) // it looks at the fleet each time
	page, err := now.SearchOffers(w.ctx, market.OfferSearch{})
	w.must(err)
	for _, o := range page.Items {
		if o.RDMAIsolation != nil && !slices.Contains(out, *o.RDMAIsolation) {
			out = append(out, *o.RDMAIsolation)
		}
	}
	return out
}

// Two organisations rent hosts of one fabric with RDMA at a time while every host has partitions: each cluster gets
// one key, for all of its ranks. Once a host has none, no new cluster begins beside another organisation's, and those
// that run keep their partitions.
func TestRDMAInPartitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	for n := range 6 {
		w.addHostOf(w.operator, n, rails(n, agentapi.IsolationPartition))
	}
	other := w.SignUp("other")
	w.Fund(other.Org, 1000*money.Unit)
	if got := w.isolation(); !slices.Equal(got, []string{agentapi.IsolationPartition}) {
		t.Errorf("offers say %q", got)
	}
	ours, err := w.rentRDMA(w.renter)
	w.must(err)
	theirs, err := w.rentRDMA(other)
	w.must(err)
	a, b := w.partitions(ours), w.partitions(theirs)
	if a[0] != fmt.Sprintf("rack-1 %s 0x2000", ours.ID) || a[1] != a[0] ||
		b[0] != fmt.Sprintf("rack-1 %s 0x2001", theirs.ID) || b[1] != b[0] {
		t.Errorf("partitions %q and %q", a, b)
	}

	// One of the free hosts loses its program.
	taken := map[*fakeHost]bool{w.hostOf(ours, 0): true, w.hostOf(ours, 1): true,
		w.hostOf(theirs, 0): true, w.hostOf(theirs, 1): true}
	for n, h := range w.hosts {
		if !taken[h] {
			w.report(h, rails(n, agentapi.IsolationSole))
			break
		}
	}
	if got := w.isolation(); !slices.Equal(got, []string{agentapi.IsolationSole}) {
		t.Errorf("offers of a fabric with a host without partitions say %q", got)
	}
	if _, err := w.rentRDMA(other); !fault.Is(err, fault.NoCapacity) {
		t.Errorf("beside another organisation, with a host without partitions: %v", err)
	}
	if again := w.partitions(ours); again[0] != a[0] || again[1] != a[1] {
		t.Errorf("a running cluster moved from %q to %q", a, again)
	}
	w.rounds(ours, "running", in(lifecycle.Running))
	_, err = w.clusters[0].Rentals.Release(w.ctx, w.renter, ours.ID)
	w.must(err)
}

// measuring makes host n one that measures its ports with NCCL.
func measuring(n int) agentapi.Inventory {
	inv := rails(n, agentapi.IsolationSole)
	inv.RDMA.NCCL = true
	return inv
}

// busbwRDMA returns what the offers say was measured over RDMA, by host.
func (w *world) busbwRDMA() map[string]float64 {
	w.t.Helper()
	page, err := markettest.New(w.World, market.Config{MaxAge: time.Nanosecond}).SearchOffers(w.ctx, market.OfferSearch{})
	w.must(err)
	out := map[string]float64{}
	for _, o := range page.Items {
		if o.BusbwRDMA != nil {
			out[o.HostID.String()] = *o.BusbwRDMA
		}
	}
	return out
}

// The ranks of a cluster with RDMA are asked to measure it if all their hosts can and the same hosts have not within a
// day. What they measured, the lowest of all ranks, is in the cluster and in the offers of its hosts, and decides which
// bandwidth they can be rented with.
func TestRDMAIsMeasured(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{})
	w.addHostOf(w.operator, 0, measuring(0))
	w.addHostOf(w.operator, 1, rails(1, agentapi.IsolationSole))
	asked := func(c cluster.Cluster) (out []bool) {
		for rank := range c.Nodes {
			for _, l := range w.desired(w.clusters[0], w.hostOf(c, rank).id).Leases {
				out = append(out, l.Network.NCCL != nil)
			}
		}
		return out
	}
	run := func(want []bool) cluster.Cluster {
		t.Helper()
		c, err := w.rentRDMA(w.renter)
		w.must(err)
		if got := asked(c); !slices.Equal(got, want) {
			t.Errorf("asked to measure: %v, want %v", got, want)
		}
		c = w.rounds(c, "running", in(lifecycle.Running))
		if got := asked(c); !slices.Equal(got, want) {
			t.Errorf("asked to measure while it runs: %v, want %v", got, want)
		}
		return c
	}
	end := func(c cluster.Cluster) {
		t.Helper()
		_, err := w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)
		w.must(err)
		w.rounds(c, "released", in(lifecycle.Released))
	}
	no, yes := []bool{false, false}, []bool{true, true}
	end(run(no))
	w.report(w.hosts[1], measuring(1))
	for _, h := range w.hosts {
		h.measured = &agentapi.NCCL{BusbwGbps: 350, LocalGbps: 2000, Ranks: 4, Version: "2.21.5", Net: "IB", Rails: 1}
	}
	w.hosts[1].measured.BusbwGbps = 340
	c := run(yes)
	if m := c.Network.RDMA; m == nil || m.BusbwGbps != 340 || m.NCCL != "2.21.5" || m.Rails != 1 || m.Detail != "" {
		t.Errorf("the cluster says %+v", m)
	}
	end(c)
	want := map[string]float64{w.hosts[0].id.String(): 340, w.hosts[1].id.String(): 340}
	if got := w.busbwRDMA(); !maps.Equal(got, want) {
		t.Errorf("offers say %v, want %v", got, want)
	}
	d, err := host.New(w.d, nil).Get(w.ctx, w.operator, w.hosts[0].id)
	w.must(err)
	if m := d.RDMA; m == nil || m.BusbwGbps != 340 || m.LocalGbps != 2000 || m.Hosts != 2 || m.NCCL != "2.21.5" {
		t.Errorf("the host says %+v", m)
	}
	s := spec(2, 2)
	s.Network = market.Network{Scope: market.ScopeFabric, Fabric: agentapi.FabricRDMA, MinBusbwGbps: 345}
	if _, _, err := w.clusters[0].Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s},
		idem.Request{}); !fault.Is(err, fault.NoCapacity) {
		t.Errorf("faster than was measured, slower than the ports: %v", err)
	}
	end(run(no)) // the same hosts, within a day

	// A day later they measure again. One cannot: nothing is stored, and the cluster starts and says why.
	w.exec("UPDATE host_rdma SET last_at = last_at - interval '25 hours'")
	w.hosts[1].measured = &agentapi.NCCL{Kind: agentapi.NCCLPeers, Detail: "not all nodes came to measure"}
	c = run(yes)
	if m := c.Network.RDMA; m == nil || m.BusbwGbps != 0 || !strings.Contains(m.Detail, "not all nodes came") {
		t.Errorf("the cluster says %+v", m)
	}
	end(c)
	if got := w.busbwRDMA(); !maps.Equal(got, want) {
		t.Errorf("offers say %v, want %v", got, want)
	}
	w.exec("UPDATE host_rdma SET busbw_at = busbw_at - interval '31 days'")
	if got := w.busbwRDMA(); len(got) > 0 {
		t.Errorf("offers say after a month: %v", got)
	}
}
