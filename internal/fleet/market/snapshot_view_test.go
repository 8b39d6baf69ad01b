package market_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

func (w *world) offers(m *market.Market) []client.Offer {
	w.t.Helper()
	p, err := m.SearchOffers(w.t.Context(), market.OfferSearch{Limit: market.MaxPage, Sort: "id"})
	if err != nil {
		w.t.Fatal(err)
	}
	return p.Items
}

// TestTheViewMissesNoLateCommitter: a transaction that began, and wrote, before a read but committed after it is seen
// by the next.
func TestTheViewMissesNoLateCommitter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.replicaOf(time.Nanosecond)
	a, b := w.host("a", 2, "1.00"), w.host("b", 2, "1.00")
	if n := w.free(m); n != 4 {
		t.Fatalf("%d free", n)
	}
	claim := func(ctx context.Context, tx *db.Tx, h id.Host) error {
		var g id.GPU
		if err := tx.QueryRow(ctx, "SELECT id FROM gpu WHERE host_id = $1 AND idx = 0", h).Scan(&g); err != nil {
			return err
		}
		return fleettest.Claim(ctx, tx, host.ForOwnUse, h.UUID(), []host.GPURef{{Host: h, GPU: g}}, nil)
	}
	w.must(func(ctx context.Context, early *db.Tx) error {
		if err := claim(ctx, early, a); err != nil {
			return err
		}
		w.must(func(ctx context.Context, tx *db.Tx) error { return claim(ctx, tx, b) })
		for range 3 {
			if n := w.free(m); n != 3 { // the later transaction's claim, not the open one's
				t.Errorf("%d free while the early transaction is open", n)
			}
		}
		return nil
	})
	if n := w.free(m); n != 2 {
		t.Errorf("%d free after the early transaction committed last", n)
	}
}

// Who waits for a read of the fleet that others share waits no longer than its own context, and ends no one's read.
func TestView_WaitsWithItsOwnContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.replicaOf(time.Nanosecond)
	w.host("a", 2, "1.00")
	search := func(ctx context.Context) chan error {
		out := make(chan error, 1)
		go func() {
			_, err := m.SearchOffers(ctx, market.OfferSearch{Limit: market.MaxPage, Sort: "id"})
			out <- err
		}()
		return out
	}
	var last chan error
	w.must(func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "LOCK TABLE offer"); err != nil {
			return err
		}
		began, leave := context.WithCancel(t.Context()) // in ctx, a transaction's, nothing else may be read
		defer leave()
		first := search(began)
		for waits := false; !waits; {
			err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database "+
				"WHERE NOT l.granted AND l.relation = 'offer'::regclass AND d.datname = current_database())").Scan(&waits)
			if err != nil {
				return err
			}
		}
		hurried, cancel := context.WithCancel(t.Context())
		second := search(hurried)
		cancel()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
		last = search(t.Context())
		leave()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("who began the read and left got %v", err)
		}
		return nil
	})
	if err := <-last; err != nil {
		t.Errorf("who stayed got %v", err)
	}
}

// TestAReplicaPlansAroundItsOwnClaims: a read that was under way when a plan was claimed has not seen the claim; the
// GPUs must not look free again until one has. So on one replica no plan is ever stale.
func TestAReplicaPlansAroundItsOwnClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.replicaOf(time.Nanosecond) // every plan reads
	for i := range 4 {
		w.host(string(rune('a'+i)), 16, "1.00")
	}
	var attempts atomic.Int64
	var renters sync.WaitGroup
	for range 16 {
		renters.Go(func() {
			for range 4 {
				request := w.request(w.tenant, spec(1, 1, ""))
				err := m.Planning(t.Context(), request, func(_ context.Context, plan market.Placement, refused error) error {
					attempts.Add(1)
					if refused != nil {
						return refused
					}
					return w.tx(func(ctx context.Context, tx *db.Tx) error {
						_, err := m.Claim(ctx, tx, plan, id.New[id.Cluster](), func(int) id.Lease { return id.New[id.Lease]() })
						return err
					})
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	renters.Wait()
	if n := attempts.Load(); n != 64 {
		t.Errorf("%d attempts for 64 rents", n)
	}
	if n := w.free(m); n != 0 {
		t.Errorf("%d free", n)
	}
}

// TestTheViewIsWhatIsThere changes everything a view depends on, in random order, and compares a view that followed
// with one that is read from nothing.
func TestTheViewIsWhatIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.replicaOf(time.Nanosecond)
	fabric := id.New[id.Fabric]()
	w.exec("INSERT INTO fabric (id, org_id, name) VALUES ($1, $2, 'f')", fabric, w.operator)
	hosts := []id.Host{w.host("a", 4, "1.00"), w.host("b", 4, "2.00"), w.host("c", 4, "")}
	changes := []string{
		"UPDATE host SET state = CASE state WHEN 'active' THEN 'draining' ELSE 'active' END WHERE id = $1",
		"UPDATE host SET region = region || 'x', cpu_cores = cpu_cores + 1 WHERE id = $1",
		"UPDATE host SET blocked = CASE blocked WHEN '' THEN 'bad' ELSE '' END WHERE id = $1",
		"UPDATE host SET capped_until = CASE WHEN capped_until IS NULL THEN now() + interval '1 day' END WHERE id = $1",
		"UPDATE host SET needs_full_report = NOT needs_full_report WHERE id = $1",
		"UPDATE host SET fabric_id = CASE WHEN fabric_id IS NULL THEN (SELECT id FROM fabric) END WHERE id = $1",
		"UPDATE fabric SET busbw_gbps = coalesce(busbw_gbps, 0) + 1 WHERE $1::uuid IS NOT NULL",
		"UPDATE host_status SET connected = NOT connected WHERE host_id = $1",
		"UPDATE host_status SET net_up_mbps = 100 WHERE host_id = $1",
		"UPDATE gpu SET health = CASE health WHEN 'healthy' THEN 'suspect' ELSE 'healthy' END WHERE host_id = $1 AND idx = 1",
		"UPDATE gpu SET present = NOT present WHERE host_id = $1 AND idx = 2",
		"UPDATE offer SET price = coalesce(price, 0) + 1 WHERE host_id = $1",
		"UPDATE offer SET price = NULL WHERE host_id = $1",
		`INSERT INTO gpu_claim (id, gpu_id, host_id, kind, ref) SELECT gen_random_uuid(), id, host_id, 'own_use', host_id
			FROM gpu
			WHERE host_id = $1 AND idx = 0 ON CONFLICT DO NOTHING`,
		"UPDATE gpu_claim SET ended_at = clock_timestamp() WHERE host_id = $1 AND ended_at IS NULL",
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 150 {
		n := r.IntN(len(changes))
		w.exec(changes[n], hosts[r.IntN(len(hosts))])
		if d := cmp.Diff(w.offers(w.replica()), w.offers(m), cmpopts.EquateComparable(id.Offer{}, id.Host{})); d != "" {
			t.Fatalf("step %d, after %s:\n%s", i, changes[n], d)
		}
	}
}

// TestSilenceIsNoticed: a host that stops reporting changes no row; the view asks, and Planning asks before it says no.
func TestSilenceIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.host("a", 1, "1.00")
	if n := w.free(w.m); n != 1 {
		t.Fatalf("%d free", n)
	}
	w.exec("UPDATE host_status SET last_sync_at = clock_timestamp() - interval '1 hour' WHERE host_id = $1", h)
	if _, err := w.rent(w.m, spec(1, 1, "")); err == nil {
		t.Error("rented a silent host")
	}
	if n := w.free(w.m); n != 0 {
		t.Errorf("%d free on a silent host", n)
	}
	w.exec("UPDATE host_status SET last_sync_at = clock_timestamp() WHERE host_id = $1", h)
	if _, err := w.rent(w.m, spec(1, 1, "")); err != nil {
		t.Errorf("the host is back: %v", err)
	}
}

func TestSimulatedHostsAreSoldInTheSandboxOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec("UPDATE host SET simulated = true WHERE id = $1", w.host("a", 1, "1.00"))
	real, err := market.New(w.d, nil, market.Config{Currency: currency})
	if err != nil {
		t.Fatal(err)
	}
	if n := w.free(real); n != 0 {
		t.Errorf("%d simulated GPUs are sold for money", n)
	}
	if n := w.free(w.m); n != 1 {
		t.Errorf("%d GPUs are sold in the sandbox", n)
	}
}

func TestPruneKeepsWhatAReplicaMayNeed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.host("a", 1, "1.00")
	if n, err := w.m.Prune(t.Context()); n != 0 || err != nil {
		t.Errorf("pruned %d fresh changes, %v", n, err)
	}
	w.exec("UPDATE fleet_change SET changed_at = clock_timestamp() - interval '1 hour'")
	if n, err := w.m.Prune(t.Context()); n == 0 || err != nil {
		t.Errorf("pruned %d old changes, %v", n, err)
	}
}
