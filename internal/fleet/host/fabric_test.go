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

// partitionedHosts are hosts with a GPU each in one fabric, all of which put their RDMA ports into partitions.
func partitionedHosts(t *testing.T, d *db.DB, n int) (id.Fabric, [][]host.GPURef) {
	t.Helper()
	fabric, gpus := fabricHosts(t, d, n)
	for _, g := range gpus {
		exec(t, d, "UPDATE host SET fabric_id = $1, rdma_gbps = 400, rdma_rails = 1, rdma_link = 'infiniband', "+
			"rdma_isolation = 'partition' WHERE id = $2", fabric, g[0].Host)
	}
	return fabric, gpus
}

func exec(t *testing.T, d *db.DB, query string, args ...any) {
	t.Helper()
	if _, err := d.Pool.Exec(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

// keyOf returns the partition key that a lease's host gets, 0 for none.
func keyOf(t *testing.T, d *db.DB, s host.ClaimSet) int {
	t.Helper()
	var key int
	if err := d.Pool.QueryRow(t.Context(), "SELECT coalesce(max(p.pkey), 0) FROM fabric_claim f JOIN fabric_partition p "+
		"ON p.fabric_id = f.fabric_id AND p.cluster_id = f.cluster_id WHERE f.ref = $1 AND f.partitioned",
		s.Ref).Scan(&key); err != nil {
		t.Fatal(err)
	}
	return key
}

// While all hosts of a fabric put their ports into partitions, each cluster has its own key, and several
// organisations rent at a time. A host that does not ends that: it has one tenant with all the others.
func TestPartitionsOfAFabric(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	fabric, gpus := partitionedHosts(t, d, 6)
	one, _ := fleettest.Org(t, d)
	two, _ := fleettest.Org(t, d)
	red, blue, green := uuid.New(), uuid.New(), uuid.New()
	set := func(i int, of id.Org, cluster uuid.UUID) host.ClaimSet {
		return host.ClaimSet{Ref: uuid.New(), GPUs: gpus[i], Fabric: fabric, Tenant: of, Cluster: cluster}
	}
	claim := func(s host.ClaimSet) {
		t.Helper()
		if err := claimFabric(t, d, host.ForLease, s, nil); err != nil {
			t.Fatal(err)
		}
	}
	first, second, other := set(0, one, red), set(1, one, red), set(2, two, blue)
	claim(first)
	claim(second)
	claim(other)
	ours, theirs := keyOf(t, d, first), keyOf(t, d, other)
	if ours < 0x2000 || ours > 0x7ffe || keyOf(t, d, second) != ours || theirs < 0x2000 || theirs == ours {
		t.Errorf("keys %#x, %#x and of another organisation %#x", ours, keyOf(t, d, second), theirs)
	}
	own := set(3, one, green)
	claim(own)
	if key := keyOf(t, d, own); key == ours || key == theirs || key == 0 {
		t.Errorf("the organisation's other cluster has the key %#x", key)
	}

	// A host that no program puts into partitions, or does no longer.
	exec(t, d, "UPDATE host SET rdma_isolation = 'sole_tenant' WHERE id = $1", gpus[4][0].Host)
	for name, s := range map[string]host.ClaimSet{
		"a new cluster":                    set(5, one, uuid.New()),
		"another organisation's":           set(5, two, uuid.New()),
		"a rank of a partitioned cluster":  set(4, one, red),
		"a quote that no cluster has yet":  {Ref: uuid.New(), GPUs: gpus[5], Fabric: fabric, Tenant: one},
		"the host itself, on the same day": set(4, two, uuid.New()),
	} {
		if err := claimFabric(t, d, host.ForLease, s, nil); !errors.Is(err, host.ErrTaken) {
			t.Errorf("%s beside another organisation's, with a host without partitions: %v", name, err)
		}
	}
	// One organisation alone may go on, but its partitioned cluster cannot take the host.
	exec(t, d, "UPDATE gpu_claim SET ended_at = clock_timestamp(), end_reason = 'released' WHERE ref = $1", other.Ref)
	if err := claimFabric(t, d, host.ForLease, set(4, one, red), nil); !errors.Is(err, host.ErrTaken) {
		t.Errorf("a rank outside of its cluster's partition: %v", err)
	}
	alone := set(4, one, uuid.New())
	claim(alone)
	if key := keyOf(t, d, alone); key != 0 {
		t.Errorf("a cluster with a host without partitions has the key %#x", key)
	}
	// That cluster stays outside, and excludes others, even if all hosts have partitions again.
	exec(t, d, "UPDATE host SET rdma_isolation = 'partition' WHERE id = $1", gpus[4][0].Host)
	if err := claimFabric(t, d, host.ForLease, set(5, two, uuid.New()), nil); !errors.Is(err, host.ErrTaken) {
		t.Errorf("beside a cluster outside of partitions: %v", err)
	}
	more := set(5, one, alone.Cluster)
	claim(more)
	if key := keyOf(t, d, more); key != 0 {
		t.Errorf("a rank of a cluster outside of partitions has the key %#x", key)
	}
}

// Keys are given in turn, so that a host which was cut off shares its old one with no newer cluster; and no two
// clusters that claim at the same moment get the same.
func TestPartitionKeysAreNotGivenAgain(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	const n = 6
	fabric, gpus := partitionedHosts(t, d, n)
	exec(t, d, "UPDATE fabric SET last_pkey = 32765 WHERE id = $1", fabric) // they start again from the first
	seen := map[int]bool{}
	for round := range 3 {
		var wg sync.WaitGroup
		sets := make([]host.ClaimSet, n)
		for i := range n {
			org, _ := fleettest.Org(t, d)
			sets[i] = host.ClaimSet{Ref: uuid.New(), GPUs: gpus[i], Fabric: fabric, Tenant: org, Cluster: uuid.New()}
			wg.Go(func() {
				if err := claimFabric(t, d, host.ForLease, sets[i], nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, s := range sets {
			key := keyOf(t, d, s)
			if key < 0x2000 || key > 0x7ffe || seen[key] {
				t.Errorf("round %d: key %#x again", round, key)
			}
			seen[key] = true
			exec(t, d, "UPDATE gpu_claim SET ended_at = clock_timestamp(), end_reason = 'released' WHERE ref = $1", s.Ref)
		}
		exec(t, d, "UPDATE fabric_claim SET created_at = created_at - interval '2 hours'")
		exec(t, d, "UPDATE fabric_partition SET created_at = created_at - interval '2 hours'")
	}
	var kept int
	if err := d.Pool.QueryRow(t.Context(), "SELECT count(*) FROM fabric_partition").Scan(&kept); err != nil || kept > n {
		t.Errorf("%d partitions are kept: %v", kept, err)
	}
}
