package worker

import (
	"context"
	"errors"

	"github.com/musterhq/muster/internal/db"
)

// dropStep is the number of rows that one statement of dropOld deletes. It is small so that a statement holds few locks
// and an interrupted pass has made progress.
const dropStep = 5000

// dropOld deletes rows whose retention time is over from tables that grow with use, and returns how many it deleted.
// docs/operations.md lists the retention times.
func dropOld(ctx context.Context, d *db.DB) (did int, err error) {
	for _, drop := range []func(context.Context, int32) (int64, error){
		d.Q.DropOldNotices,
		d.Q.DropOldDeliveries,
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
