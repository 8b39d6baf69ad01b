package cluster_test

import (
	"sync"
	"testing"

	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/money"
)

// Passes of several replicas at the same time look at each due cluster once.
func TestWatchdog_ReplicasShareTheDueClusters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 6, gpus: 1, replicas: 2, funds: 100_000 * money.Unit})
	var all []cluster.Cluster
	for range 6 {
		c := w.runUp(spec(1, 1))
		w.tick(c)
		all = append(all, c)
	}
	for _, c := range all {
		w.rounds(c, "running", in(lifecycle.Running))
	}
	w.exec("UPDATE cluster SET due_at = clock_timestamp(), full_look_at = clock_timestamp()")
	var group sync.WaitGroup
	var mu sync.Mutex
	looked := 0
	for _, replica := range w.clusters {
		group.Go(func() {
			r, err := replica.Watchdog(w.ctx)
			if err != nil || r.Failed > 0 || r.Calm > 0 {
				t.Errorf("%+v, %v", r, err)
			}
			mu.Lock()
			defer mu.Unlock()
			looked += r.Looked
		})
	}
	group.Wait()
	if looked != len(all) {
		t.Errorf("%d looks at %d clusters", looked, len(all))
	}
	if r, err := w.clusters[0].Watchdog(w.ctx); err != nil || r.Looked != 0 {
		t.Errorf("again: %+v, %v", r, err)
	}
	w.ledger()
}
