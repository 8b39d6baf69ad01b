package host

import (
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// QueueRevision queues the statement that raises the revisions of hosts whose desired state changes in tx, and wakes
// the hosts after the commit. The batch must be sent in tx. The caller must have locked the hosts if there are several.
// hosts must not be empty; b may be nil.
func QueueRevision(batch *pgx.Batch, tx *db.Tx, b *bus.Bus, hosts []id.Host) {
	var rows []dbq.RaiseHostRevisionsRow
	db.Read(batch, &rows, (*dbq.Queries).RaiseHostRevisions, uuids(hosts))
	tx.AfterCommit(func() {
		for _, r := range rows {
			b.Wake(r.ID, r.Revision)
		}
	})
}
