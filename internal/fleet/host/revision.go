package host

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// RaiseRevision raises the revisions of hosts whose desired state changes in this transaction, and wakes the hosts
// after the commit. The caller must have locked the hosts if there are several. b may be nil.
func RaiseRevision(ctx context.Context, tx *db.Tx, b *bus.Bus, hosts ...id.Host) error {
	if len(hosts) == 0 {
		return nil
	}
	batch := &pgx.Batch{}
	QueueRevision(batch, tx, b, hosts)
	if err := tx.Send(ctx, batch); err != nil {
		return fmt.Errorf("host: raise revisions: %w", err)
	}
	return nil
}

// QueueRevision queues the statement of RaiseRevision; the batch must be sent in tx. hosts must not be empty.
func QueueRevision(batch *pgx.Batch, tx *db.Tx, b *bus.Bus, hosts []id.Host) {
	var rows []dbq.RaiseHostRevisionsRow
	db.Read(batch, &rows, (*dbq.Queries).RaiseHostRevisions, uuids(hosts))
	tx.AfterCommit(func() {
		for _, r := range rows {
			b.Wake(r.ID, r.Revision)
		}
	})
}
