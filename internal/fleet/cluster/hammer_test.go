package cluster_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// TestEightReplicasNeverRentAGPUTwice: renters on eight replicas rent and release on one small fleet as fast as they
// can, while hosts report to any replica and every replica's watchdog looks. At no moment is a GPU in two live leases
// on its host. In the end nothing is claimed or held, and the ledger balances.
func TestEightReplicasNeverRentAGPUTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 3, gpus: 4, replicas: 8})
	var rented, refused atomic.Int64
	var renters, others sync.WaitGroup
	stop := make(chan struct{})
	for i, h := range w.hosts {
		others.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := h.sync(w.ctx, n); err != nil {
					t.Errorf("sync: %v", err)
					return
				}
				h.neverTwice(t)
			}
		})
	}
	for _, c := range w.clusters {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if r, err := c.Watchdog.Pass(w.ctx); err != nil || r.Failed > 0 {
					t.Errorf("watchdog: %+v %v", r, err)
					return
				}
			}
		})
		renters.Go(func() {
			for range 2000 {
				if rented.Load() >= 60 {
					return
				}
				s := spec(1+rand.IntN(2), 1+rand.IntN(3))
				got, _, err := c.Rentals.Rent(w.ctx, w.renter, cluster.RentRequest{Spec: s}, idem.Request{})
				switch {
				case fault.Is(err, fault.NoCapacity), fault.Is(err, fault.Conflict):
					refused.Add(1)
					continue
				case err != nil:
					t.Errorf("rent: %v", err)
					return
				}
				rented.Add(1)
				if rand.IntN(3) == 0 { // let some of them run
					_, _ = c.Views.Wait(w.ctx, w.renter.Org, got.ID, lifecycle.Running, cluster.MaxWait)
				}
				if _, err := c.Rentals.Release(w.ctx, w.renter, got.ID); err != nil {
					t.Errorf("release: %v", err)
					return
				}
			}
		})
	}
	renters.Wait()
	close(stop)
	others.Wait()
	t.Logf("%d rented, %d refused", rented.Load(), refused.Load())
	if rented.Load() == 0 {
		t.Fatal("nothing was ever rented")
	}
	list, err := w.clusters[0].Views.List(w.ctx, w.renter.Org, cluster.ListRequest{Limit: 1000})
	w.must(err)
	for _, c := range list {
		w.rounds(c, "ended", func(c cluster.Cluster) bool { return c.State.Final() })
		w.tick(c)
	}
	for _, c := range list {
		w.clean(c)
	}
	wallet := w.wallet()
	for _, c := range list {
		wallet += w.get(c).CostSoFar
	}
	if wallet != 1000e9 {
		t.Errorf("wallet and costs are %s, want what was paid in", wallet)
	}
	earned, err := ledger.Balance(w.ctx, w.d.Q, ledger.HostPending(w.operator.Org, usd))
	w.must(err)
	fee, err := ledger.Balance(w.ctx, w.d.Q, ledger.Fee(usd))
	w.must(err)
	if w.wallet()+earned+fee != 1000e9 {
		t.Errorf("wallet %s + earned %s + fee %s is not what was paid in", w.wallet(), earned, fee)
	}
}

// neverTwice checks that no GPU is in two runs that could both use it.
func (h *fakeHost) neverTwice(t *testing.T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	user := map[string]agentapi.LeaseRef{}
	for ref, r := range h.runs {
		if r.Gone {
			continue
		}
		for _, g := range r.spec.GPUs {
			if other, taken := user[g]; taken && other.Lease != ref.Lease {
				t.Errorf("%s is used by %s and %s", g, other, ref)
			}
			user[g] = ref
		}
	}
}

func TestKeptLogsAreStoredOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 1, gpus: 1})
	c := w.runUp(spec(1, 1))
	h := w.hosts[0]
	log, err := w.clusters[0].Views.Log(w.ctx, w.renter.Org, c.ID, 0)
	w.must(err)
	if log.Live == nil || log.Live.Host != h.id || len(log.Runs) != 0 {
		t.Fatalf("while it runs: %+v", log)
	}
	w.must(errOf(w.clusters[0].Rentals.Release(w.ctx, w.renter, c.ID)))
	w.must(h.sync(w.ctx, 0)) // learns of it
	for _, r := range h.runs {
		r.LogKept = true
	}
	w.rounds(c, "released", in(lifecycle.Released))
	kept, err := w.clusters[0].Logs.Kept(w.ctx, 10, 10)
	w.must(err)
	if len(kept) != 1 || kept[0].Host != h.id || kept[0].Cluster != c.ID {
		t.Fatalf("kept %+v", kept)
	}
	if refs, err := w.storedLogs(h); err != nil || len(refs) != 0 {
		t.Fatalf("stored %v, %v before anything was", refs, err)
	}
	w.must(w.clusters[0].Logs.Store(w.ctx, kept[0].Node, kept[0].Ref.Epoch, []byte("one\n"), true))
	w.must(w.clusters[0].Logs.Store(w.ctx, kept[0].Node, kept[0].Ref.Epoch, []byte("two\n"), false))
	refs, err := w.storedLogs(h)
	w.must(err)
	if len(refs) != 1 || refs[0] != kept[0].Ref {
		t.Errorf("acked %v, want %v", refs, kept[0].Ref)
	}
	if kept, err = w.clusters[0].Logs.Kept(w.ctx, 10, 10); err != nil || len(kept) != 0 {
		t.Errorf("still to fetch: %v, %v", kept, err)
	}
	log, err = w.clusters[0].Views.Log(w.ctx, w.renter.Org, c.ID, 0)
	w.must(err)
	if log.Live != nil || len(log.Runs) != 1 || string(log.Runs[0].Content) != "one\n" || !log.Runs[0].Truncated {
		t.Errorf("log %+v", log)
	}
	for _, r := range h.runs {
		r.LogKept = false
	}
	w.must(h.sync(w.ctx, 0))
	if refs, err = w.storedLogs(h); err != nil || len(refs) != 0 {
		t.Errorf("acked for ever: %v, %v", refs, err)
	}
	for want, days := range []int{cluster.LogDays - 1, cluster.LogDays + 1} {
		_, err := w.d.Pool.Exec(w.ctx, "UPDATE node_log SET created_at = clock_timestamp() - make_interval(days => $1)", days)
		w.must(err)
		if n, err := w.clusters[0].Logs.DropOld(w.ctx); err != nil || n != want {
			t.Errorf("after %d days %d logs were dropped, %v", days, n, err)
		}
	}
	if log, err = w.clusters[0].Views.Log(w.ctx, w.renter.Org, c.ID, 0); err != nil || len(log.Runs) != 0 ||
		log.Live != nil {
		t.Errorf("a dropped log: %+v %v", log, err)
	}
	if _, err := w.clusters[0].Views.Log(w.ctx, w.renter.Org, c.ID, 5); !fault.Is(err, fault.Invalid) {
		t.Errorf("rank 5 of 1: %v", err)
	}
	if err := w.clusters[0].Logs.Store(w.ctx, id.New[id.Node](), 1, make([]byte, cluster.MaxLog+1), false); !fault.Is(err,
		fault.TooLarge) {
		t.Errorf("too large: %v", err)
	}
	w.clean(c)
}
