package host

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
)

// RaiseRevision says that the hosts' desired state changes in this transaction: it raises their revisions and wakes them
// after the commit. The caller has locked the hosts, if they are more than one. b may be nil.
func RaiseRevision(ctx context.Context, tx *db.Tx, b *bus.Bus, hosts ...id.Host) error {
	if len(hosts) == 0 {
		return nil
	}
	rows, err := tx.Q.RaiseHostRevisions(ctx, uuids(hosts))
	if err != nil {
		return fmt.Errorf("host: raise revisions: %w", err)
	}
	tx.AfterCommit(func() {
		for _, r := range rows {
			b.Wake(r.ID, r.Revision)
		}
	})
	return nil
}
