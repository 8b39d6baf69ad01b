package e2e

import (
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// A cluster of three hosts behind three routers: two meet through their routers, the third's takes another port for
// every destination, and it is reached through the relay. They train, end with the same parameters, and leave nothing.
func TestAClusterAcrossRouters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	near := w.Box(t, "near", w.Home(testnet.Preserving), "192.168.1.1", "1.00", "192.168.1.10/24")
	far := w.Box(t, "far", w.Home(testnet.Preserving), "192.168.1.1", "1.00", "192.168.1.10/24")
	shut := w.Box(t, "shut", w.Home(testnet.Symmetric), "192.168.1.1", "1.00", "192.168.1.10/24")
	r := w.renter(t, 20*money.Unit)
	idle := r.run(t, w.spec(3, 1, "sleep", "3600"))
	w.awaitPaths(t, r, idle, map[[2]*box]string{{near, far}: "punched", {near, shut}: "relay", {far, shut}: "relay"})
	if _, err := r.Clusters.Release(t.Context(), idle.ID); err != nil {
		t.Fatal(err)
	}
	u := r.settle(t, idle)
	r.owes(t, u, r.trained(t, r.rent(t, w.job(3, time.Second))))
	w.idle(t)
	w.check(t)
}

// awaitPaths waits until the API returns for every pair of hosts how they reach each other, both ways.
func (w *world) awaitPaths(t *testing.T, r *renter, c client.Cluster, want map[[2]*box]string) {
	t.Helper()
	var last map[[2]string]string
	defer func() {
		if t.Failed() {
			t.Logf("paths: %v\n%s", last, r.timeline(t, c))
		}
	}()
	eventually(t, "every pair of hosts has its path", func() bool {
		now, err := r.Clusters.Get(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now.State.Ended() {
			t.Fatalf("%s: %s", now.State, now.Detail)
		}
		last = map[[2]string]string{}
		for _, n := range now.Nodes {
			for _, p := range n.Paths {
				last[[2]string{w.at(t, now, n.Rank).Name, w.at(t, now, p.Rank).Name}] = p.Path
			}
		}
		for pair, path := range want {
			a, b := pair[0].Name, pair[1].Name
			if last[[2]string{a, b}] != path || last[[2]string{b, a}] != path {
				return false
			}
		}
		return true
	})
}
