package cluster_test

import (
	"context"
	"testing"

	"github.com/musterhq/muster/internal/cluster"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/market"
)

// What a host has for scratch is never promised twice: what live leases hold is not there for others, under the locks that
// guard its GPUs, and it is there again when they have ended.
func TestScratchIsPromisedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 4})
	s := spec(1, 1)
	s.ScratchGB = 60
	refused := func(constraint string) {
		t.Helper()
		_, err := w.clusters[0].Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s}, idem.Request{})
		var why []market.Exclusion
		if f := fault.From(err); f != nil {
			why, _ = f.Extra["explain"].([]market.Exclusion)
		}
		if !fault.Is(err, fault.NoCapacity) || len(why) != 1 || why[0].Constraint != constraint {
			t.Fatalf("%v %+v", err, why)
		}
	}
	refused("scratch_gb = 60")
	w.exec("UPDATE host SET scratch_gb = 100 WHERE id = $1", w.hosts[0].id)
	c := w.runUp(s)
	w.tx(func(ctx context.Context, tx *db.Tx) error {
		d, err := w.clusters[0].Desired(ctx, tx, w.hosts[0].id)
		if err == nil && (len(d.Leases) != 1 || d.Leases[0].ScratchGB != 60) {
			t.Errorf("%+v", d.Leases)
		}
		return err
	})
	refused("scratch_gb = 60")
	s.ScratchGB = 40
	beside := w.runUp(s)
	for _, x := range []cluster.Cluster{c, beside} {
		if _, err := w.clusters[0].Release(w.ctx, w.renter, x.ID); err != nil {
			t.Fatal(err)
		}
	}
	w.clean(c)
	s.ScratchGB = 60
	results := make(chan error, 4)
	for range cap(results) { // at once: one GPU is there for each, scratch for one
		go func() {
			_, err := w.clusters[0].Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s}, idem.Request{})
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
