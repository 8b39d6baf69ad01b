package host_test

import (
	"context"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// A GPU's power limit is stored in whole watts. A limit that is not reported, or that no GPU can have, is not known,
// even if one was known before.
func TestInventoryNamesPowerLimits(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	inv := fleettest.Inventory(1)
	inv.GPUs[0].PowerLimitMW, inv.GPUs[0].PowerDefaultMW = agentapi.Known[int64](450_000), agentapi.Known[int64](450_000)
	h, err := enroll(t, d, fleettest.Policy, fleettest.NewAgent(t).Request(t, fleettest.Origin,
		fleettest.Token(t, d, org, user, ""), inv))
	if err != nil {
		t.Fatal(err)
	}
	kept := func() [2]int {
		got, err := host.New(d, nil).Get(t.Context(), account.Principal{Org: org}, h.ID)
		if err != nil {
			t.Fatal(err)
		}
		return [2]int{got.GPUs[0].PowerLimitW, got.GPUs[0].PowerDefaultW}
	}
	if got := kept(); got != [2]int{450, 450} {
		t.Errorf("enrolled with %v", got)
	}
	none := agentapi.Optional[int64]{NotSupported: true}
	for _, c := range []struct {
		limit, made agentapi.Optional[int64]
		want        [2]int
	}{
		{agentapi.Known[int64](250_999), agentapi.Known[int64](450_000), [2]int{250, 450}},
		{none, agentapi.Known[int64](450_000), [2]int{0, 450}},
		{agentapi.Known[int64](300_000), none, [2]int{300, 0}},
		{agentapi.Known[int64](-1), agentapi.Known[int64](1 << 62), [2]int{0, 0}},
	} {
		inv.GPUs[0].PowerLimitMW, inv.GPUs[0].PowerDefaultMW = c.limit, c.made
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return fleettest.RecordInventory(ctx, tx, h.ID,
				inv)
		}); err != nil {
			t.Fatal(err)
		}
		if got := kept(); got != c.want {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}
