package host

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// Report is what the server learned from one sync.
type Report struct {
	At       time.Time // PostgreSQL's clock when it was taken
	Revision int64     // the host's current one
	// Gone are ended leases of the host that its full report no longer shows: their claims ended with this report.
	Gone []id.Lease
}

// RecordSync takes note of a sync: contact, versions, revision seen. A full report that knows the current revision
// ends the claims of ended leases it does not show (or shows as gone), and when it shows nothing that should not be
// there, a host that had abandoned claims may sell again. The first full report makes an enrolled host active.
//
// Call it first in its transaction: it may lock the host. Syncs may come twice, late and out of order.
func RecordSync(ctx context.Context, tx *db.Tx, host id.Host, s agentapi.Sync) (Report, error) {
	return Report{}, notBuilt()
}

// RecordInventory takes note of what the host has: new GPUs appear, vanished ones are no longer present. A GPU that
// is active on another host is refused with fault.Conflict.
func RecordInventory(ctx context.Context, tx *db.Tx, host id.Host, inv agentapi.Inventory) error {
	return notBuilt()
}

// RecordHealth stores health events of the host's GPUs, each once, and moves the GPUs to the state they tell. s gives
// the boot and its clock. It returns the highest event number that is stored.
func RecordHealth(ctx context.Context, tx *db.Tx, host id.Host, s agentapi.Sync) (uint64, error) {
	return 0, notBuilt()
}
