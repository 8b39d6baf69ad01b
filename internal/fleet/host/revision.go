package host

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Wake raises the revisions of hosts whose desired state has changed, in a transaction of its own, and wakes them. It
// is for changes whose own transaction must not lock hosts. If it is lost, the hosts get the change with their next
// revision. No hosts, and a nil b, do nothing.
func Wake(ctx context.Context, d *db.DB, b *bus.Bus, hosts []id.Host) error {
	if b == nil || len(hosts) == 0 {
		return nil
	}
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		batch := &pgx.Batch{}
		QueueLock(batch, hosts)
		QueueRevision(batch, tx, b, hosts)
		return tx.Send(ctx, batch)
	})
}

// QueueRevision queues the statement that raises the revisions of hosts whose desired state changes in tx, and wakes
// the hosts after the commit. The batch must be sent in tx. The caller must have locked the hosts if there are several.
// hosts must not be empty; b may be nil.
func QueueRevision(batch *pgx.Batch, tx *db.Tx, b *bus.Bus, hosts []id.Host) {
	var rows []dbq.RaiseHostRevisionsRow
	db.Read(batch, &rows, (*dbq.Queries).RaiseHostRevisions, id.UUIDs(hosts...))
	tx.AfterCommit(func() {
		for _, r := range rows {
			b.Wake(r.ID, r.Revision)
		}
	})
}
