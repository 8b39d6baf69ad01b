package notify

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/text"
)

// ParkAfter is how long a row may fail before administrators are notified and it is retried once a day only.
const ParkAfter = 72 * time.Hour

// Waits between the attempts at a row that fails.
const (
	firstRetry  = 30 * time.Second // doubles with each attempt
	maxRetry    = time.Hour
	parkedRetry = 24 * time.Hour
)

// FailedRow is a row that a background job cannot process.
type FailedRow = client.DeadLetter

// DeadLetter records that a background job could not process the row ref of queue, and returns when to retry it: after
// 30 seconds, then twice as long each time, at most an hour. Administrators are notified once when it has failed for
// ParkAfter; from then on the wait is a day. Call it outside of the transaction that failed.
func DeadLetter(ctx context.Context, d *db.DB, queue, ref string, cause error) (wait time.Duration, err error) {
	const maxError = 2000
	why := text.Clip(cause.Error(), maxError)
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		r, err := tx.Q.RecordDeadLetter(ctx, queue, ref, why)
		if err != nil {
			return err
		}
		wait = retryWait(int(r.Attempts))
		if time.Duration(r.FailingS*float64(time.Second)) < ParkAfter {
			return nil
		}
		wait = parkedRetry
		if r.Parked {
			return nil
		}
		if _, err := tx.Q.ParkDeadLetter(ctx, queue, ref); err != nil {
			return err
		}
		return AddForAdmins(ctx, tx, Notice{
			Key:      "dead_letter:" + queue + ":" + ref,
			Severity: Bad,
			Title:    "A background job has failed for three days",
			Body: fmt.Sprintf("The job %s cannot process %s: %s. It is retried once a day. GET /api/v1/admin/dead-letters "+
				"lists all rows that fail.",
				queue, ref, text.Clip(why, 300)),
		})
	})
	if err != nil {
		return firstRetry, fmt.Errorf("dead letter %s %s: %w", queue, ref, err)
	}
	return wait, nil
}

// retryWait is the wait after so many failed attempts, of at least one.
func retryWait(attempts int) time.Duration {
	return min(maxRetry, firstRetry<<min(max(0, attempts-1), 10))
}

// DropDeadLetter removes a row that was processed from the dead letters. One that is not there is no error.
func DropDeadLetter(ctx context.Context, q *dbq.Queries, queue, ref string) error {
	if err := q.DeleteDeadLetter(ctx, queue, ref); err != nil {
		return fmt.Errorf("dead letter %s %s: %w", queue, ref, err)
	}
	return nil
}

// SweepDeadLetters removes entries of rows that have not failed for two days. Run it every few minutes or hours.
func SweepDeadLetters(ctx context.Context, q *dbq.Queries) (int64, error) {
	n, err := q.DeleteStaleDeadLetters(ctx)
	if err != nil {
		return 0, fmt.Errorf("sweep dead letters: %w", err)
	}
	return n, nil
}

// DeadLetters are the rows that background jobs cannot process, those that have failed for longest first, at most
// limit.
func (n *Notices) DeadLetters(ctx context.Context, limit int) ([]FailedRow, error) {
	rows, err := n.db.Q.ListDeadLetters(ctx, int32(limit))
	if err != nil {
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	out := make([]FailedRow, len(rows))
	for i, r := range rows {
		out[i] = FailedRow{
			Queue:    r.Queue,
			Ref:      r.Ref,
			Attempts: int(r.Attempts),
			Error:    r.Error,
			Since:    r.FailingSince,
			FailedAt: r.FailedAt,
			ParkedAt: r.ParkedAt,
		}
	}
	return out, nil
}
