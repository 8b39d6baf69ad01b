package market_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
)

// TestConcurrentRentersNeverShareAGPU: eight replicas empty one fleet at once. No GPU is claimed twice, every gang is
// whole, and nothing is refused before the fleet is as good as empty.
func TestConcurrentRentersNeverShareAGPU(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const hosts, each = 6, 8
	for i := range hosts {
		w.host(string(rune('a'+i)), each, "2.00")
	}
	var mu sync.Mutex
	owner := map[id.GPU]int{}
	held, refused := 0, 0
	var wg sync.WaitGroup
	for r := range 8 {
		m := w.replica()
		wg.Go(func() {
			for i := 0; ; i++ {
				s := spec(1+(r+i)%3, 1+(r+2*i)%3, "gpu_model=H100")
				p, err := w.rent(m, s)
				mu.Lock()
				switch {
				case errors.Is(err, market.ErrStale):
					mu.Unlock()
					continue // a client would try again; it must not stop before the fleet is empty
				case fault.Is(err, fault.NoCapacity):
					refused++
					mu.Unlock()
					if s.GPUs() == 1 || i > 100 {
						return
					}
					continue
				case err != nil:
					t.Errorf("replica %d: %v", r, err)
					mu.Unlock()
					return
				}
				if len(p.Nodes) != s.Nodes || len(gpus(p)) != s.GPUs() {
					t.Errorf("a gang of %d × %d is not whole: %+v", s.Nodes, s.GPUsPerNode, p)
				}
				for _, g := range gpus(p) {
					if before, taken := owner[g]; taken {
						t.Errorf("%s was rented by replicas %d and %d", g, before, r)
					}
					owner[g] = r
				}
				held += s.GPUs()
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if n := w.claims(host.ForLease); n != held || held != len(owner) || n != hosts*each {
		t.Errorf("%d live claims, %d GPUs rented, %d of them different, %d in the fleet", n, held, len(owner), hosts*each)
	}
	if refused == 0 {
		t.Error("the fleet never ran out")
	}
}

func TestHoldTakesOtherGPUsOfTheSameOffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 4, "1.00")
	other := w.replica()
	if n := w.free(other); n != 4 { // both have seen the fleet
		t.Fatalf("%d free", n)
	}
	first, err := w.rent(w.m, spec(1, 2, ""))
	if err != nil {
		t.Fatal(err)
	}
	// The other replica's view may still show all four: it plans for the same two and gets the rest.
	second, err := w.rent(other, spec(1, 2, ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gpus(first) {
		for _, h := range gpus(second) {
			if g == h {
				t.Errorf("%s twice", g)
			}
		}
	}
	_, err = w.rent(w.m, spec(1, 1, ""))
	f := fault.From(err)
	if !fault.Is(err, fault.NoCapacity) || f.Extra["explain"] == nil {
		t.Errorf("%v", err)
	}
}

func TestHoldRefusesAPlanThatNoLongerHolds(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world, h id.Host){
		"price":     func(w *world, h id.Host) { w.price(h, "1.01") },
		"unlisted":  func(w *world, h id.Host) { w.exec("UPDATE offer SET price = NULL") },
		"min_gpus":  func(w *world, h id.Host) { w.exec("UPDATE offer SET min_gpus = 4") },
		"duration":  func(w *world, h id.Host) { w.exec("UPDATE offer SET max_duration_s = 3600") },
		"draining":  func(w *world, h id.Host) { w.exec("UPDATE host SET state = 'draining'") },
		"data cap":  func(w *world, h id.Host) { w.exec("UPDATE host SET capped_until = now() + interval '1 hour'") },
		"silent":    func(w *world, h id.Host) { w.exec("UPDATE host_status SET last_sync_at = now() - interval '1 hour'") },
		"gone":      func(w *world, h id.Host) { w.exec("UPDATE host_status SET connected = false") },
		"no bound":  func(w *world, h id.Host) { w.exec("UPDATE host SET disk_limited = false") },
		"runtime":   func(w *world, h id.Host) { w.exec("UPDATE host SET runtimes = '{runc}'") },
		"disk":      func(w *world, h id.Host) { w.exec("UPDATE host SET disk_gb = 5") },
		"memory":    func(w *world, h id.Host) { w.exec("UPDATE host SET ram_mb = 2048") },
		"unhealthy": func(w *world, h id.Host) { w.exec("UPDATE gpu SET health = 'suspect' WHERE idx < 3") },
		"in use":    func(w *world, h id.Host) { w.exec("UPDATE gpu SET in_use = 'Xorg, 412 MiB' WHERE idx < 3") },
		"present":   func(w *world, h id.Host) { w.exec("UPDATE gpu SET present = false WHERE idx < 3") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			h := w.host("a", 4, "1.00")
			w.exec("UPDATE host SET disk_limited = true, runtimes = '{runc,runsc}'")
			s := spec(1, 2, "disk_limited=true runtime=runsc")
			s.DiskLimited, s.Runtime = true, "runsc"
			var plan market.Placement
			stop := errors.New("stop")
			err := w.m.Planning(t.Context(), w.request(w.tenant, s), func(_ context.Context, p market.Placement,
				refused error) error {
				plan = p
				return errors.Join(stop, refused)
			})
			if !errors.Is(err, stop) || len(plan.Nodes) == 0 {
				t.Fatal(err)
			}
			change(w, h)
			err = w.tx(func(ctx context.Context, tx *db.Tx) error {
				_, err := w.m.Claim(ctx, tx, plan, id.New[id.Cluster](), func(int) id.Lease { return id.New[id.Lease]() })
				return err
			})
			if !errors.Is(err, market.ErrStale) {
				t.Errorf("%v, want ErrStale", err)
			}
			if n := w.claims(host.ForLease); n != 0 {
				t.Errorf("%d claims are left", n)
			}
		})
	}
}

// TestAnAttemptThatFailsLeavesNoMark: plans of attempts that were given up must not keep GPUs from others.
func TestAnAttemptThatFailsLeavesNoMark(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 4, "1.00")
	poor := errors.New("no money")
	for range 3 {
		err := w.m.Planning(t.Context(), w.request(w.tenant, spec(1, 4, "")), func(_ context.Context,
			_ market.Placement, refused error) error {
			if refused != nil {
				return refused
			}
			if n := w.free(w.m); n != 0 {
				t.Errorf("%d GPUs free while a plan is under way", n)
			}
			return poor
		})
		if !errors.Is(err, poor) {
			t.Fatal(err)
		}
		if n := w.free(w.m); n != 4 {
			t.Errorf("%d GPUs free after it failed", n)
		}
	}
}

// TestNoCapacityIsConfirmed: what appeared a moment ago, after this replica's last look, is found.
func TestNoCapacityIsConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.rent(w.m, spec(1, 2, ""))
	if !fault.Is(err, fault.NoCapacity) {
		t.Fatal(err)
	}
	for i := range 5 {
		w.host(string(rune('a'+i)), 2, "1.00")
		if _, err := w.rent(w.m, spec(1, 2, "")); err != nil {
			t.Fatalf("host %d: %v", i, err)
		}
	}
}

// A GPU that is not free after all, though it was under the host's lock, is refused by PostgreSQL, also in the batch
// that commits: nothing is claimed, and the plan is stale.
func TestClaim_RefusedWithTheCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.host("a", 2, "2.00")
	plan := w.plan(w.tenant, spec(1, 2, ""))
	for name, spoil := range map[string]string{
		"in use": "UPDATE gpu SET in_use = 'x' WHERE host_id = $1 AND idx = 1",
		"claimed": "INSERT INTO gpu_claim (id, gpu_id, host_id, kind, ref) SELECT gen_random_uuid(), id, host_id, " +
			"'lease', gen_random_uuid() FROM gpu WHERE host_id = $1 AND idx = 1",
	} {
		err := w.tx(func(ctx context.Context, tx *db.Tx) error {
			b := &pgx.Batch{}
			rows := w.m.QueueHosts(b, plan.HostIDs(), true)
			if err := tx.Send(ctx, b); err != nil {
				return err
			}
			placed, err := rows.Fit(plan)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, spoil, h); err != nil {
				return err
			}
			tx.Last = &pgx.Batch{}
			sets := placed.ClaimSets(id.New[id.Cluster](), func(int) id.Lease { return id.New[id.Lease]() })
			host.QueueLeaseClaims(tx.Last, tx, nil, sets, rows.Lapsed(placed))
			return nil
		})
		if err = market.ClaimFailure(err, false); !errors.Is(err, market.ErrStale) {
			t.Errorf("%s: %v", name, err)
		}
		if n := w.claims(host.ForLease); n != 0 {
			t.Errorf("%s: %d claims", name, n)
		}
	}
}
