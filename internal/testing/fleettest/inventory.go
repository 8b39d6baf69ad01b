package fleettest

import (
	"context"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// RecordInventory stores the inventory of one host. Faults: those that host.RecordInventories refuses inventories with.
func RecordInventory(ctx context.Context, tx *db.Tx, h id.Host, inv agentapi.Inventory) error {
	hash, err := host.HashInventory(inv)
	if err != nil {
		return err
	}
	out, err := host.RecordInventories(ctx, tx, []host.Listed{{Host: h, Inventory: inv, Hash: hash}})
	if err != nil {
		return err
	}
	return out[0].Refused
}
