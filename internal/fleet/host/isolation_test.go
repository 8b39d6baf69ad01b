package host_test

import (
	"context"
	"slices"
	"testing"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// What a host reports about its disk and runtimes is stored, except for runtimes that no spec can require. An agent
// that reports none offers runc.
func TestInventoryNamesRuntimes(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	inv := fleettest.Inventory(1)
	h, err := enroll(t, d, fleettest.Policy, fleettest.NewAgent(t).Request(t, fleettest.Origin,
		fleettest.Token(t, d, org, user, ""), inv))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		limited    bool
		said, kept []string
	}{
		{true, nil, []string{"runc"}},
		{false, []string{"runsc", "runc", "kata", "runsc"}, []string{"runc", "runsc"}},
		{true, []string{"runc"}, []string{"runc"}},
	} {
		inv.DiskLimited, inv.Runtimes = c.limited, c.said
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return fleettest.RecordInventory(ctx, tx, h.ID,
				inv)
		}); err != nil {
			t.Fatal(err)
		}
		got, err := host.Read(t.Context(), d.Q, h.ID)
		if err != nil || got.DiskLimited != c.limited || !slices.Equal(got.Runtimes, c.kept) {
			t.Errorf("%v: %t %v %v", c.said, got.DiskLimited, got.Runtimes, err)
		}
	}
}
