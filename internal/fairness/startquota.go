package fairness

import "sort"

const (
	// quotaWindowMS is the rolling hour of the start quota.
	quotaWindowMS = 3_600_000
	// quotaLeast and quotaPerGPU are GPU-seconds.
	quotaLeast, quotaPerGPU = 1800, 600
)

// FailedStart is a start that the renter abandoned or that failed by the renter's doing: an image or registry that could
// not be used, a command that was not found, a release before the ranks ran, a workload that exited within five seconds.
type FailedStart struct {
	ClaimedMS, EndedMS int64 // unix ms: for how long it held its GPUs
	GPUs               int
}

// StartQuota returns how many GPU-seconds failed starts of one organisation may hold in an hour for free. largestGPUs is
// the number of GPUs of its largest cluster that ran in the last 30 days, 0 for none.
func StartQuota(largestGPUs int) int64 { return max(quotaLeast, quotaPerGPU*int64(largestGPUs)) }

// StartAllowed reports whether an organisation may start another cluster at nowMS (unix ms), and otherwise when it may.
// What failed starts held within the last hour must be less than the quota; so a first failure never blocks, however
// large it was.
func StartAllowed(failed []FailedStart, largestGPUs int, nowMS int64) (ok bool, freeMS int64) {
	used := func(at int64) (gpuMS int64) {
		for _, f := range failed {
			gpuMS += int64(f.GPUs) * max(0, min(f.EndedMS, at)-max(f.ClaimedMS, at-quotaWindowMS))
		}
		return gpuMS
	}
	quota := StartQuota(largestGPUs) * 1000
	wait := sort.Search(quotaWindowMS, func(ms int) bool { return used(nowMS+int64(ms)) < quota })
	return wait == 0, nowMS + int64(wait)
}
