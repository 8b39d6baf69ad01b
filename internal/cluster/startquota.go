package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/fairness"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// renterFaults are the reasons for which a start fails by the renter's doing.
var renterFaults = []Reason{ReasonImageNotFound, ReasonImageUnauthorized, ReasonImageRefused, ReasonImageTooBig, ReasonImageWrongArch,
	ReasonImageNewerCUDA, ReasonRegistryAway, ReasonCommandNotFound, ReasonReleasedByUser, ReasonRegistrySlow}

// quickExit is how soon after its start a workload must fail to count as a failed start.
const quickExit = 5 * time.Second

// startQuota refuses a start of an organisation whose failed and abandoned starts have held GPUs for too long within the last
// hour, with the time when it may start again: a start that fails is free, so it must not hold what others would rent.
func (c *Clusters) startQuota(ctx context.Context, org id.Org) error {
	reasons := make([]string, len(renterFaults))
	for i, r := range renterFaults {
		reasons[i] = string(r)
	}
	rows, err := c.db.Q.FailedStarts(ctx, org, reasons, int64(quickExit.Seconds()))
	if err != nil {
		return fmt.Errorf("failed starts of %s: %w", org, err)
	}
	if len(rows) == 0 {
		return nil
	}
	largest, err := c.db.Q.LargestCluster(ctx, org)
	if err != nil {
		return fmt.Errorf("largest cluster of %s: %w", org, err)
	}
	now, err := c.db.Q.DatabaseTime(ctx)
	if err != nil {
		return fmt.Errorf("the time: %w", err)
	}
	failed := make([]fairness.FailedStart, len(rows))
	for i, r := range rows {
		failed[i] = fairness.FailedStart{ClaimedMS: r.CreatedAt.UnixMilli(), EndedMS: r.EndedAt.UnixMilli(), GPUs: int(r.Gpus)}
	}
	ok, free := fairness.StartAllowed(failed, int(largest), now.UnixMilli())
	if ok {
		return nil
	}
	at := time.UnixMilli(free).UTC()
	f := fault.New(fault.RateLimited, "Starts that failed or were abandoned have held GPUs for too long within the last hour: you can start again at %s UTC. "+
		"Check image, registry and command; a start that runs does not count.", at.Format("15:04:05"))
	f.RetryAfter = at.Sub(now)
	f.Extra = map[string]any{"limit": "start_quota", "free_at": at}
	return f
}
