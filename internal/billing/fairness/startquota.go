package fairness

import (
	"sort"
	"time"
)

const (
	// quotaWindowMS is the rolling hour of the start quota.
	quotaWindowMS = 3_600_000
	// quotaLeast and quotaPerGPU are GPU-seconds.
	quotaLeast, quotaPerGPU = 1800, 600
)

// StartReserve is how long a start that is under way counts as holding its GPUs at least, so that starts side by side
// are bounded like starts one after the other.
const StartReserve = 120 * time.Second

// Start is a start that holds or held GPUs for nothing: one that the renter abandoned or that failed by the renter's
// doing (an image or registry that could not be used, a command that was not found, a release before the ranks ran, a
// workload that exited within five seconds), or one that is under way.
type Start struct {
	ClaimedMS, EndedMS int64 // unix ms: for how long it held its GPUs; EndedMS is 0 while it is under way
	GPUs               int
}

// StartQuota returns how many GPU-seconds such starts of one organisation may hold in an hour for free. largestGPUs is
// the number of GPUs of its largest cluster that ran in the last 30 days, 0 for none.
func StartQuota(largestGPUs int) int64 { return max(quotaLeast, quotaPerGPU*int64(largestGPUs)) }

// StartAllowed reports whether an organisation may start another cluster at nowMS (unix ms), and otherwise when it may
// at the latest, should none of the starts under way run until then. What starts held within the last hour, those under
// way for at least the reserve, must be less than the quota; so a first start is never refused, however large it is.
func StartAllowed(starts []Start, largestGPUs int, nowMS int64, reserve time.Duration) (ok bool, freeMS int64) {
	used := func(at int64) (gpuMS int64) {
		for _, s := range starts {
			if s.EndedMS == 0 {
				gpuMS += int64(s.GPUs) * min(quotaWindowMS, max(reserve.Milliseconds(), nowMS-s.ClaimedMS))
				continue
			}
			gpuMS += int64(s.GPUs) * max(0, min(s.EndedMS, at)-max(s.ClaimedMS, at-quotaWindowMS))
		}
		return gpuMS
	}
	quota := StartQuota(largestGPUs) * 1000
	wait := sort.Search(quotaWindowMS, func(ms int) bool { return used(nowMS+int64(ms)) < quota })
	return wait == 0, nowMS + int64(wait)
}
