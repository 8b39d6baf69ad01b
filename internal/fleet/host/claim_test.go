package host_test

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// Gangs over several hosts are claimed and released by many at once: nothing deadlocks, every GPU of a gang has no
// other holder, and the winners' claims are complete.
func TestClaimsAreExclusive(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	const hosts, gpusPerHost, workers, rounds = 6, 4, 16, 12
	var ids []id.Host
	gpus := map[id.Host][]host.GPURef{}
	for range hosts {
		a := fleettest.Enroll(t, d, org, user, gpusPerHost)
		ids = append(ids, a.Host)
		gpus[a.Host] = fleettest.GPUs(t, d, a.Host)
	}
	var mu sync.Mutex
	held := map[id.GPU]uuid.UUID{}
	won := 0
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				ref := uuid.New()
				gang := slices.Clone(ids)
				rand.Shuffle(len(gang), func(i, j int) { gang[i], gang[j] = gang[j], gang[i] })
				gang = gang[:1+rand.IntN(3)]
				var want []host.GPURef
				for _, h := range gang {
					for _, n := range rand.Perm(gpusPerHost)[:2] {
						want = append(want, gpus[h][n])
					}
				}
				err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
					if _, err := host.Lock(ctx, tx, gang); err != nil {
						return err
					}
					return fleettest.Claim(ctx, tx, host.ForLease, ref, want, nil)
				})
				if errors.Is(err, host.ErrTaken) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				won++
				for _, g := range want {
					if other, ok := held[g.GPU]; ok {
						t.Errorf("GPU %s is claimed by %s and %s", g.GPU, other, ref)
					}
					held[g.GPU] = ref
				}
				mu.Unlock()
				// Before the claims end, no other gang can have them.
				mu.Lock()
				for _, g := range want {
					delete(held, g.GPU)
				}
				mu.Unlock()
				if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
					if _, err := host.Lock(ctx, tx, gang); err != nil {
						return err
					}
					return host.EndClaims(ctx, tx, ref, host.EndReleased)
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if won == 0 {
		t.Error("nobody ever claimed anything")
	}
	var deadlocks, active int
	if err := d.Pool.QueryRow(t.Context(), "SELECT deadlocks, (SELECT count(*) FROM gpu_claim WHERE ended_at IS NULL) "+
		"FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks, &active); err != nil || deadlocks != 0 ||
		active != 0 {
		t.Errorf("%d deadlocks, %d claims left, %v", deadlocks, active, err)
	}
}

func TestClaimTakesNothingOfWhatIsGoneOrTaken(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	a := fleettest.Enroll(t, d, org, user, 3)
	gpus := fleettest.GPUs(t, d, a.Host)
	slices.SortFunc(gpus, func(a, b host.GPURef) int { return cmp.Compare(a.GPU.String(), b.GPU.String()) })
	claim := func(kind host.ClaimKind, ref uuid.UUID, gpus []host.GPURef, expires *time.Time) error {
		return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if _, err := host.Lock(ctx, tx, []id.Host{a.Host}); err != nil {
				return err
			}
			return fleettest.Claim(ctx, tx, kind, ref, gpus, expires)
		})
	}
	free := func() (n int) {
		if err := d.Pool.QueryRow(t.Context(),
			"SELECT 3 - count(*) FROM gpu_claim WHERE ended_at IS NULL").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if _, err := d.Pool.Exec(t.Context(), "UPDATE gpu SET health = 'quarantined' WHERE id = $1", gpus[2].GPU); err != nil {
		t.Fatal(err)
	}
	if err := claim(host.ForLease, uuid.New(), gpus, nil); !errors.Is(err, host.ErrTaken) || free() != 3 {
		t.Errorf("a quarantined GPU: %v, %d free", err, free())
	}
	stranger := gpus[0]
	stranger.Host = id.New[id.Host]()
	if err := claim(host.ForLease, uuid.New(), []host.GPURef{stranger}, nil); !errors.Is(err, host.ErrTaken) {
		t.Errorf("a GPU said to be elsewhere: %v", err)
	}
	past := time.Now().Add(-time.Hour)
	if err := claim(host.ForQuote, uuid.New(), gpus[:2], &past); err != nil {
		t.Fatal(err)
	}
	lease := uuid.New()
	if err := claim(host.ForLease, lease, gpus[:1], nil); err != nil {
		t.Errorf("a quote that ran out stands in the way: %v", err)
	}
	if n, err := host.ExpireClaims(t.Context(), d, 10); err != nil || n != 1 || free() != 2 {
		t.Errorf("expired %d, %v, %d free", n, err, free())
	}
	if err := claim(host.ForQuote, uuid.New(), gpus[:2], nil); !errors.Is(err, host.ErrTaken) || free() != 2 {
		t.Errorf("a taken GPU: %v, %d free", err, free())
	}
}
