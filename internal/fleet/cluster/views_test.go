package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// Rents that wait for a second connection while they hold one would stop the whole pool: here a dozen rents of images
// that no rent has named before share two connections.
func TestRentsNeedOneConnectionEach(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), db.Config{URL: dbtest.NewURL(t), MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	w := newWorld(t, worldConfig{hosts: 1, gpus: 4, db: d})
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute) // a deadlock ends then
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	rented := 0
	for i := range 12 {
		all.Go(func() {
			s := spec(1, 1)
			s.Image = fmt.Sprintf("example.com/train:%d", i)
			_, _, err := w.clusters[0].Rentals.Rent(ctx, w.renter, cluster.RentRequest{Spec: s}, idem.Request{})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				rented++
			case errors.Is(err, context.DeadlineExceeded) || !fault.Is(err, fault.NoCapacity):
				t.Errorf("image %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if rented != 4 {
		t.Errorf("%d rented, of 4 GPUs", rented)
	}
}

// A page of many clusters takes as many statements as a page of one: twelve with the look-up of the caller's token.
func TestList_StatementsDoNotGrowWithRows(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	w := newWorld(t, worldConfig{hosts: 6, gpus: 1, db: d})
	list := func(want int) (statements int64) {
		t.Helper()
		before := k.Statements.Load()
		rows, err := w.clusters[0].Views.List(w.ctx, w.renter.Org, cluster.ListRequest{Limit: 50})
		statements = k.Statements.Load() - before
		if w.must(err); len(rows) != want {
			t.Fatalf("%d clusters listed, want %d", len(rows), want)
		}
		for _, c := range rows {
			if c.State != lifecycle.Running || !c.Billing {
				t.Errorf("%+v", c)
			}
		}
		return statements
	}
	w.runUp(spec(1, 1))
	one := list(1)
	for range 3 {
		w.runUp(spec(1, 1))
	}
	w.runUp(spec(2, 1))
	if five := list(5); five != one || one > 11 {
		t.Errorf("%d statements for one cluster, %d for five", one, five)
	}
}

// What a view costs does not grow with how long a cluster has run: no view reads a segment.
func TestViewsReadNoSegments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	w.rounds(c, "billed", func(c cluster.Cluster) bool { return c.CostSoFar > 0 })
	w.exec("ALTER TABLE usage_segment RENAME TO usage_segment_hidden")
	key := idem.Request{Principal: "p", Method: "POST", Path: "/clusters/x/actions", Key: "k", BodyHMAC: []byte("b")}
	if got := w.get(c); got.CostSoFar <= 0 || got.BillableSeconds <= 0 || !got.Billing {
		t.Errorf("a running cluster: %+v", got)
	}
	list, err := w.clusters[0].Views.List(w.ctx, w.renter.Org, cluster.ListRequest{Limit: 10})
	if w.must(err); len(list) != 1 || list[0].CostSoFar <= 0 {
		t.Errorf("listed: %+v", list)
	}
	_, err = w.clusters[0].Views.Wait(w.ctx, w.renter.Org, c.ID, lifecycle.Running, time.Second)
	w.must(err)
	released, _, err := w.clusters[0].Rentals.ActOnce(w.ctx, w.renter, c.ID, cluster.ActionRelease, key)
	w.must(err)
	w.exec("ALTER TABLE usage_segment_hidden RENAME TO usage_segment")
	w.rounds(c, "released", in(lifecycle.Released))
	again, _, err := w.clusters[0].Rentals.ActOnce(w.ctx, w.renter, c.ID, cluster.ActionRelease, key)
	if w.must(err); again.State != released.State || again.State != lifecycle.Releasing ||
		again.CostSoFar != released.CostSoFar {
		t.Errorf("the first answer is given again: %s for %s, then %s for %s", released.State, released.CostSoFar,
			again.State, again.CostSoFar)
	}
}

// A server that dies between the commit of an action and the storing of its answer leaves no answer: the repeated
// request gets the cluster as it is, and does nothing again.
func TestAnActionWhoseAnswerWasNotStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	c := w.runUp(spec(1, 1))
	key := idem.Request{Principal: "p", Method: "POST", Path: "/clusters/x/actions", Key: "k", BodyHMAC: []byte("b")}
	_, _, err := w.clusters[0].Rentals.ActOnce(w.ctx, w.renter, c.ID, cluster.ActionRestart, key)
	w.must(err)
	w.exec("UPDATE idempotency_key SET response = 'null' WHERE key = 'k'")
	w.rounds(c, "running again", in(lifecycle.Running))
	got, done, err := w.clusters[0].Rentals.ActOnce(w.ctx, w.renter, c.ID, cluster.ActionRestart, key)
	if w.must(err); !done.Replayed || got.State != lifecycle.Running || got.Epoch != 2 || len(got.Nodes) != 1 {
		t.Errorf("%+v", got)
	}
}
