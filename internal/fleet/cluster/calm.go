package cluster

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
)

// calmBatch is how many clusters are kept calm in one transaction, and locked for as long.
const calmBatch = 250

// keepCalm passes over due clusters in whose rows nothing asks for attention, many in each transaction: it only moves
// the time at which they are due again, and through when the time of single nodes is confirmed. In between, within six
// minutes each, such clusters are looked at one by one all the same. Whatever this cannot see (proof that completes,
// bonds, a gang's confirmed time) waits for that look; whatever it can see ends the calm at once. It returns how many
// clusters were calm.
func (c *Clusters) keepCalm(ctx context.Context) (n int, err error) {
	for ctx.Err() == nil {
		calm := 0
		err := c.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			step, look := metering.UntouchedPaid.Seconds(), lookRunning.Seconds()
			ids, err := tx.Q.LockQuietClusters(ctx, step, look, calmBatch)
			if err != nil || len(ids) == 0 {
				return err
			}
			// A statement of its own, so that it sees what is there under the locks.
			rows, err := tx.Q.KeepCalm(ctx, dbq.KeepCalmParams{
				Ids:    uuids(ids...),
				LostS:  c.cfg.LostAfter.Seconds(),
				StepS:  step,
				LookS:  look,
				PostMs: metering.UntouchedPosted.Milliseconds(),
			})
			if err != nil {
				return err
			}
			calm = len(rows)
			var single []pgtype.UUID
			var good []int64
			for _, r := range rows {
				if r.NodeCount == 1 {
					single, good = append(single, uuids(r.ID)...), append(good, r.GoodMs)
				}
			}
			return metering.AdvanceAllConfirmed(ctx, tx, single, good)
		})
		if err != nil {
			return n, fmt.Errorf("keep calm clusters: %w", err)
		}
		if n += calm; calm == 0 {
			break
		}
	}
	return n, ctx.Err()
}
