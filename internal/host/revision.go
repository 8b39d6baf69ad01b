package host

import (
	"context"

	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// RaiseRevision says that the hosts' desired state changes in this transaction: it locks them in order, raises their
// revisions, and wakes them after the commit. b may be nil.
func RaiseRevision(ctx context.Context, tx *db.Tx, b *bus.Bus, hosts ...id.Host) error {
	return notBuilt()
}
