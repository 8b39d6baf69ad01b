package cluster

import (
	"slices"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// lateStarts writes down the time for which ranks that had started waited for ranks that started too late, or not by
// now: it is billed to nobody, and the late ranks' hosts are to blame for it.
func (x *lockedCluster) lateStarts() {
	if len(x.nodes) < 2 || x.row.GoAt == nil {
		return
	}
	var ranks []*node
	var started []int64
	for _, n := range x.nodes {
		if !n.required || n.ended != nil {
			continue
		}
		ranks = append(ranks, n)
		if n.StartedAt == nil {
			started = append(started, 0)
		} else {
			started = append(started, n.StartedAt.UnixMilli())
		}
	}
	b, ok := fairness.Begin(started)
	if !ok || len(b.Late) == 0 || slices.ContainsFunc(ranks, x.deafNow) {
		return
	}
	cuts := []int64{b.FromMS, x.now.UnixMilli()}
	if !slices.Contains(started, 0) {
		cuts[1] = slices.Max(started)
	}
	for _, k := range b.Late {
		x.strike(ranks[k], nil, strikeStart)
		if started[k] > 0 {
			cuts = append(cuts, started[k])
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for i := range len(cuts) - 1 {
		var culprits []id.Lease
		for _, k := range b.Late {
			if started[k] == 0 || started[k] > cuts[i] {
				culprits = append(culprits, ranks[k].LeaseID)
			}
		}
		if len(culprits) > 0 {
			x.suspended = append(x.suspended, dbq.InsertSuspensionParams{
				ClusterID: x.row.ID, FromMs: cuts[i], ToMs: cuts[i+1], Class: string(fairness.Proof), Culprits: uuids(culprits...),
			})
		}
	}
}
