package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// renterFaults are the reasons for which a start fails by the renter's doing.
var renterFaults = []Reason{ReasonImageNotFound, ReasonImageUnauthorized, ReasonImageRefused, ReasonImageTooBig,
	ReasonImageWrongArch,
	ReasonImageNewerCUDA, ReasonRegistryAway, ReasonCommandNotFound, ReasonReleasedByUser, ReasonRegistrySlow}

// quickExit is how soon after its start a workload must fail to count as a failed start.
const quickExit = 5 * time.Second

// freeStarts are the starts of an organisation that hold or held GPUs for free.
type freeStarts struct {
	starts  []fairness.Start
	largest int // GPUs of its largest cluster of late; 0 while it is not asked for
}

// queueStarts queues a read of them. The organisation's wallet is locked before, so that rents at the same time see each
// other.
func queueStarts(b *pgx.Batch, org id.Org, into *freeStarts) {
	reasons := make([]string, len(renterFaults))
	for i, r := range renterFaults {
		reasons[i] = string(r)
	}
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.FreeStarts(ctx, org, reasons, int64(quickExit.Seconds()))
		into.starts = make([]fairness.Start, len(rows))
		for i, r := range rows {
			into.starts[i] = fairness.Start{ClaimedMS: r.CreatedAt.UnixMilli(), GPUs: int(r.Gpus)}
			if r.EndedAt != nil {
				into.starts[i].EndedMS = r.EndedAt.UnixMilli()
			}
		}
		return err
	})
}

// allows reports whether another start is within the quota, and if not, when the next is possible.
func (s freeStarts) allows(reserve time.Duration, now time.Time) (ok bool, free time.Time) {
	ok, at := fairness.StartAllowed(s.starts, s.largest, now.UnixMilli(), reserve)
	return ok, time.UnixMilli(at).UTC()
}

// readLargest reads what an organisation's quota is raised by, if its starts exceed the usual one.
func (s *freeStarts) readLargest(ctx context.Context, q *dbq.Queries, org id.Org, reserve time.Duration,
	now time.Time) error {
	if ok, _ := s.allows(reserve, now); ok {
		return nil
	}
	largest, err := q.LargestCluster(ctx, org)
	if err != nil {
		return fmt.Errorf("largest cluster of %s: %w", org, err)
	}
	s.largest = int(largest)
	return nil
}

// check refuses another start of an organisation whose starts hold too many GPUs for nothing, with the time when the
// next is possible: a start is free until every rank runs, so it must not hold what others would rent.
func (s freeStarts) check(reserve time.Duration, now time.Time) error {
	ok, at := s.allows(reserve, now)
	if ok {
		return nil
	}
	f := fault.New(fault.RateLimited, "Starts that failed, were abandoned or are still under way hold too many GPUs: "+
		"you can start again at %s UTC, or as soon as a start "+
		"that is under way runs. Check image, registry and command; a cluster that has run does not count.",
		at.Format("15:04:05"))
	f.RetryAfter = at.Sub(now)
	f.Extra = map[string]any{"limit": "start_quota", "free_at": at}
	return f
}
