package host

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// RaiseRevision says that the hosts' desired state changes in this transaction: it raises their revisions and wakes
// them after the commit. The caller has locked the hosts, if they are more than one. b may be nil.
func RaiseRevision(ctx context.Context, tx *db.Tx, b *bus.Bus, hosts ...id.Host) error {
	if len(hosts) == 0 {
		return nil
	}
	p := db.NewPipe(tx.Q)
	raised := QueueRevision(ctx, p, tx, b, hosts)
	p.Send(ctx)
	raised()
	if err := p.Close(); err != nil {
		return fmt.Errorf("host: raise revisions: %w", err)
	}
	return nil
}

// QueueRevision is RaiseRevision as part of a pipe; its result reads the answer, after Send. There is at least one
// host.
func QueueRevision(ctx context.Context, p *db.Pipe, tx *db.Tx, b *bus.Bus, hosts []id.Host) (read func()) {
	asked := p.Q.RaiseHostRevisions(ctx, [][]pgtype.UUID{uuids(hosts)})
	var rows []dbq.RaiseHostRevisionsRow
	tx.AfterCommit(func() {
		for _, r := range rows {
			b.Wake(r.ID, r.Revision)
		}
	})
	return func() { asked.Query(db.Keep(p, &rows)) }
}
