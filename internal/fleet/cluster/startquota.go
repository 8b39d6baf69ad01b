package cluster

import (
	"context"
	"fmt"
	"time"

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

// queueStarts reads as part of a pipe which starts of an organisation hold or held GPUs for free. Send it after the
// organisation's wallet is locked, so that rents side by side see each other.
func queueStarts(ctx context.Context, p *db.Pipe, org id.Org) func() []fairness.Start {
	reasons := make([]string, len(renterFaults))
	for i, r := range renterFaults {
		reasons[i] = string(r)
	}
	ask := p.Q.FreeStarts(ctx, []dbq.FreeStartsParams{{OrgID: org, Reasons: reasons, QuickS: int64(quickExit.Seconds())}})
	return func() []fairness.Start {
		var rows []dbq.FreeStartsRow
		ask.Query(db.Keep(p, &rows))
		starts := make([]fairness.Start, len(rows))
		for i, r := range rows {
			starts[i] = fairness.Start{ClaimedMS: r.CreatedAt.UnixMilli(), GPUs: int(r.Gpus)}
			if r.EndedAt != nil {
				starts[i].EndedMS = r.EndedAt.UnixMilli()
			}
		}
		return starts
	}
}

// startQuota refuses another start of an organisation whose starts hold too many GPUs for nothing, with the time when
// the next is possible: a start is free until every rank runs, so it must not hold what others would rent.
func (c *Clusters) startQuota(ctx context.Context, q *dbq.Queries, org id.Org, starts []fairness.Start,
	now time.Time) error {
	if ok, _ := fairness.StartAllowed(starts, 0, now.UnixMilli(), c.cfg.StartReserve); ok {
		return nil
	}
	largest, err := q.LargestCluster(ctx, org)
	if err != nil {
		return fmt.Errorf("largest cluster of %s: %w", org, err)
	}
	ok, free := fairness.StartAllowed(starts, int(largest), now.UnixMilli(), c.cfg.StartReserve)
	if ok {
		return nil
	}
	at := time.UnixMilli(free).UTC()
	f := fault.New(fault.RateLimited, "Starts that failed, were abandoned or are still under way hold too many GPUs: "+
		"you can start again at %s UTC, or as soon as a start "+
		"that is under way runs. Check image, registry and command; a cluster that has run does not count.",
		at.Format("15:04:05"))
	f.RetryAfter = at.Sub(now)
	f.Extra = map[string]any{"limit": "start_quota", "free_at": at}
	return f
}
