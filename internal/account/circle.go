package account

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// The circle of an org are the orgs that are linked with it, directly or through others, by a user who may rent
// clusters in both or by a card that both have saved. What an org may hold or take for nothing, it may together with
// its circle, so that more orgs make no quota larger. PostgreSQL's function org_circle returns it; triggers on
// memberships and cards write the links. A link that has ended counts for as long as what was held under it.

// LockCircle makes transactions that count what the circle of an org holds or takes for nothing run one after the
// other. Lock it before hosts and accounts.
func LockCircle(ctx context.Context, tx *db.Tx, org id.Org) error {
	if err := tx.Q.LockCircle(ctx, id.UUIDs(org)[0]); err != nil {
		return fmt.Errorf("lock the circle of %s: %w", org, err)
	}
	return nil
}

// QueueLockCircle queues what LockCircle does.
func QueueLockCircle(b *pgx.Batch, org id.Org) {
	db.Write(b, (*dbq.Queries).LockCircle, id.UUIDs(org)[0])
}

// DropEndedLinks deletes links between orgs that ended too long ago to count. A worker calls it.
func DropEndedLinks(ctx context.Context, d *db.DB) (int64, error) {
	n, err := d.Q.DropEndedLinks(ctx)
	if err != nil {
		return 0, fmt.Errorf("drop ended links of organisations: %w", err)
	}
	return n, nil
}
