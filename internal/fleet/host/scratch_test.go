package host_test

import (
	"context"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// What an agent has for scratch counts when it says that it gives nodes theirs: one that does not, such as a version
// that an update was rolled back to, offers none.
func TestScratchCountsWhereTheAgentKnowsIt(t *testing.T) {
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
		says       []string
		said, kept int64
	}{
		{nil, 500, 0},
		{[]string{agentapi.CapScratch}, 500, 500},
		{[]string{agentapi.CapSelfUpdate}, 500, 0},
		{agentapi.Capabilities(), 0, 0},
		{agentapi.Capabilities(), 700, 700},
	} {
		inv.Capabilities, inv.ScratchGB = c.says, c.said
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return fleettest.RecordInventory(ctx, tx, h.ID,
				inv)
		}); err != nil {
			t.Fatal(err)
		}
		if got, err := host.Read(t.Context(), d.Q, h.ID); err != nil || got.ScratchGB != c.kept {
			t.Errorf("%v %d: %d %v", c.says, c.said, got.ScratchGB, err)
		}
	}
	inv.ScratchGB = -1
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return fleettest.RecordInventory(ctx, tx, h.ID,
			inv)
	}); !fault.Is(err, fault.Invalid) {
		t.Errorf("less than none: %v", err)
	}
}
