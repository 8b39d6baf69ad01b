package worker

import (
	"context"
	"errors"

	"github.com/musterhq/muster/internal/db"
)

// dropStep bounds one statement of dropOld, so that it holds few locks and a pass that is cut off has done something.
const dropStep = 5000

// dropOld deletes rows whose retention is over from tables that grow with use. docs/operations.md lists how long each
// is kept. It returns how many rows it deleted.
func dropOld(ctx context.Context, d *db.DB) (did int, err error) {
	for _, drop := range []func(context.Context, int32) (int64, error){
		d.Q.DropOldNotices,
		d.Q.DropOldStripeEvents,
		d.Q.DropOldQuotes,
		d.Q.DropOldClaims,
		d.Q.DropOldQuarantine,
		d.Q.DropOldDeafSpans,
		d.Q.DropOldEarningHours,
	} {
		for ctx.Err() == nil {
			n, failed := drop(ctx, dropStep)
			did, err = did+int(n), errors.Join(err, failed)
			if failed != nil || n < dropStep {
				break
			}
		}
	}
	return did, err
}
