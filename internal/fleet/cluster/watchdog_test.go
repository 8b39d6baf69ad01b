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
			r, err := replica.Watchdog.Pass(w.ctx)
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
	if r, err := w.clusters[0].Watchdog.Pass(w.ctx); err != nil || r.Looked != 0 {
		t.Errorf("again: %+v, %v", r, err)
	}
	w.ledger()
}

// A calm cluster that becomes due while a pass looks at another is passed over by the same pass, and not looked at.
func TestWatchdog_WhatBecomesDueDuringALookIsKeptCalm(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1, funds: 100_000 * money.Unit})
	var all []cluster.Cluster
	for range 2 {
		c := w.runUp(spec(1, 1))
		w.tick(c)
		all = append(all, c)
	}
	for _, c := range all {
		w.rounds(c, "running", in(lifecycle.Running))
	}
	w.exec("CREATE FUNCTION due_too() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE cluster SET due_at = " +
		"clock_timestamp() WHERE id <> NEW.id; RETURN NULL; END $$")
	w.exec("CREATE TRIGGER due_too AFTER UPDATE ON cluster FOR EACH ROW WHEN (OLD.full_look_at < NEW.full_look_at - " +
		"interval '1 minute') EXECUTE FUNCTION due_too()")
	w.exec("UPDATE cluster SET due_at = clock_timestamp() + interval '1 hour'")
	w.exec("UPDATE cluster SET due_at = clock_timestamp(), full_look_at = 'epoch' WHERE id = $1", all[0].ID)
	if r, err := w.clusters[0].Watchdog.Pass(w.ctx); err != nil || r.Looked != 1 || r.Calm != 1 || r.Failed != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	w.ledger()
}

// A cluster that asks for attention is not asked again whether it is calm before it has been looked at: many of them
// do not keep a pass from those that are.
func TestWatchdog_ARestlessClusterIsLookedAtNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1, funds: 100_000 * money.Unit})
	c := w.runUp(spec(1, 1))
	w.tick(c)
	w.rounds(c, "running", in(lifecycle.Running))
	w.exec("UPDATE lease SET run_until = clock_timestamp() + interval '20 minutes'")
	w.exec("UPDATE cluster SET due_at = clock_timestamp(), full_look_at = clock_timestamp() + interval '5 minutes'")
	if r, err := w.clusters[0].Watchdog.Pass(w.ctx); err != nil || r.Looked != 1 || r.Calm != 0 || r.Failed != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	w.rounds(c, "running", in(lifecycle.Running))
	w.exec("UPDATE cluster SET due_at = clock_timestamp()")
	if r, err := w.clusters[0].Watchdog.Pass(w.ctx); err != nil || r.Looked != 0 || r.Calm != 1 {
		t.Fatalf("after its look: %+v, %v", r, err)
	}
}
