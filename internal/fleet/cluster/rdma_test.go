package cluster_test

import (
	"context"
	"fmt"
	"slices"
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
	w.tx(func(ctx context.Context, tx *db.Tx) error { return host.RecordInventory(ctx, tx, h.id, inv) })
}

func (w *world) rentRDMA(who account.Principal) (cluster.Cluster, error) {
	s := spec(2, 2)
	s.Network = market.Network{Scope: market.ScopeFabric, Fabric: agentapi.FabricRDMA}
	c, _, err := w.clusters[0].Rent(w.ctx, who, cluster.RentRequest{Spec: s}, idem.Request{})
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
	_, err = w.clusters[0].Release(w.ctx, w.renter, ours.ID)
	w.must(err)
}
