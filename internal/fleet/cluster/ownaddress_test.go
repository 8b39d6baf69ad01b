package cluster_test

import (
	"testing"

	"github.com/musterhq/muster/internal/id"
)

// A host that reports where its rank is wakes the hosts of the others, which have to know it, and not itself.
func TestOwnAddress_WakesTheOthersAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 3, gpus: 1})
	c := w.rent(spec(3, 1))
	revision := func(h id.Host) (n int64) {
		t.Helper()
		w.must(w.d.Pool.QueryRow(w.ctx, "SELECT revision FROM host WHERE id = $1", h).Scan(&n))
		return n
	}
	own := w.hostOf(c, 0)
	var before [3]int64
	for i, h := range w.hosts {
		before[i] = revision(h.id)
	}
	for n := 0; w.get(c).Nodes[0].State != "joining"; n++ {
		if n == 10 {
			t.Fatalf("rank 0 is %s", w.get(c).Nodes[0].State)
		}
		w.must(own.sync(w.ctx, 0))
	}
	for i, h := range w.hosts {
		want := before[i] + 1
		if h == own {
			want--
		}
		if got := revision(h.id); got != want {
			t.Errorf("host %d has revision %d, want %d", i, got, want)
		}
		if h == own {
			continue
		}
		found := false
		for _, p := range w.desired(w.clusters[0], h.id).Leases[0].Network.Peers {
			found = found || p.Rank == 0 && p.Key != "" && len(p.Endpoints) > 0
		}
		if !found {
			t.Errorf("host %d does not get the address of rank 0", i)
		}
	}
	w.rounds(c, "running", in("running"))
}
