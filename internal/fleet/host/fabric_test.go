package host_test

import (
	"context"
	"errors"
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

// fabricHosts are hosts with a GPU each in one fabric.
func fabricHosts(t *testing.T, d *db.DB, n int) (id.Fabric, [][]host.GPURef) {
	t.Helper()
	org, user := fleettest.Org(t, d)
	var fabric id.Fabric
	if err := d.Pool.QueryRow(t.Context(),
		"INSERT INTO fabric (id, org_id, name) VALUES (gen_random_uuid(), $1, 'rack') RETURNING id",
		org).Scan(&fabric); err != nil {
		t.Fatal(err)
	}
	var all [][]host.GPURef
	for range n {
		a := fleettest.Enroll(t, d, org, user, 1)
		all = append(all, fleettest.GPUs(t, d, a.Host))
	}
	return fabric, all
}

func claimFabric(t *testing.T, d *db.DB, kind host.ClaimKind, s host.ClaimSet, expires *time.Time) error {
	t.Helper()
	return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := host.Lock(ctx, tx, []id.Host{s.GPUs[0].Host}); err != nil {
			return err
		}
		return host.ClaimAll(ctx, tx, kind, []host.ClaimSet{s}, expires)
	})
}

// A fabric has one tenant at a time. It may take more hosts, another organisation may take none with RDMA, and the
// fabric is free with the end of the tenant's last claim, or when its quote has expired.
func TestAFabricHasOneTenant(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	fabric, gpus := fabricHosts(t, d, 4)
	one, _ := fleettest.Org(t, d)
	two, _ := fleettest.Org(t, d)
	set := func(i int, of id.Org) host.ClaimSet {
		return host.ClaimSet{Ref: uuid.New(), GPUs: gpus[i], Fabric: fabric, Tenant: of}
	}
	end := func(s host.ClaimSet) {
		t.Helper()
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return host.EndClaims(ctx, tx, s.Ref, host.EndReleased)
		}); err != nil {
			t.Fatal(err)
		}
	}
	first, second := set(0, one), set(1, one)
	for _, s := range []host.ClaimSet{first, second} {
		if err := claimFabric(t, d, host.ForLease, s, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := claimFabric(t, d, host.ForLease, set(2, two), nil); !errors.Is(err, host.ErrTaken) {
		t.Errorf("a second tenant: %v", err)
	}
	if err := claimFabric(t, d, host.ForLease, host.ClaimSet{Ref: uuid.New(), GPUs: gpus[3]}, nil); err != nil {
		t.Errorf("a renter without RDMA: %v", err)
	}
	end(first)
	if err := claimFabric(t, d, host.ForLease, set(2, two), nil); !errors.Is(err, host.ErrTaken) {
		t.Errorf("a second tenant before the last claim ended: %v", err)
	}
	end(second)
	soon := time.Now().Add(time.Hour)
	quote := set(2, two)
	if err := claimFabric(t, d, host.ForQuote, quote, &soon); err != nil {
		t.Fatalf("the next tenant: %v", err)
	}
	if err := claimFabric(t, d, host.ForLease, set(0, one), nil); !errors.Is(err, host.ErrTaken) {
		t.Errorf("while another's quote is open: %v", err)
	}
	if _, err := d.Pool.Exec(t.Context(), "UPDATE gpu_claim SET expires_at = clock_timestamp() WHERE ref = $1",
		quote.Ref); err != nil {
		t.Fatal(err)
	}
	if err := claimFabric(t, d, host.ForLease, set(0, one), nil); err != nil {
		t.Errorf("after the quote expired: %v", err)
	}
}

// Of several organisations that claim hosts of one fabric at the same moment, one gets it.
func TestAFabricIsClaimedOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	const n = 6
	fabric, gpus := fabricHosts(t, d, n)
	var wg sync.WaitGroup
	won := make([]bool, n)
	for i := range n {
		org, _ := fleettest.Org(t, d)
		wg.Go(func() {
			err := claimFabric(t, d, host.ForLease,
				host.ClaimSet{Ref: uuid.New(), GPUs: gpus[i], Fabric: fabric, Tenant: org}, nil)
			if won[i] = err == nil; err != nil && !errors.Is(err, host.ErrTaken) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	winners := 0
	for _, w := range won {
		if w {
			winners++
		}
	}
	if winners != 1 {
		t.Errorf("%d organisations rent one fabric", winners)
	}
}
