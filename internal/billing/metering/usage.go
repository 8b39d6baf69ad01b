package metering

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Usage is what a cluster used and what it costs.
type Usage struct {
	Currency   string
	BillableMS int64      // time in which at least one of its leases was billed
	GPUMS      int64      // Σ over leases of GPUs × billed time
	Cost       money.Nano // of all time proven so far: the sum of the lines
	Posted     money.Nano // of Cost, what the ledger holds already; all of it once Settled
	// Estimate is Cost if every second up to now that is not proven yet will be: what a running cluster costs so far.
	Estimate   money.Nano
	EstimateMS int64              // BillableMS, likewise
	ByRank     map[int]money.Nano // Estimate of each rank, over all hosts it was on
	EnergyMJ   int64
	Settled    bool // nothing will change any more
	Lines      []UsageLine
}

// UsageLine is what one signed segment adds to the bill at one price.
type UsageLine struct {
	Lease    id.Lease
	Host     id.Host
	Rank     int
	Epoch    int
	BootID   string
	Seq      int64
	From, To time.Time // of its first and last billed millisecond
	MS       int64     // billed; less than To − From when windows closed in between
	GPUs     int
	Rate     money.Micro // per hour, the whole lease
	Cost     money.Nano  // cumulative floor differences: the lines of a lease add up to its charge exactly
	HostPart money.Nano  // of Cost, likewise
	EnergyMJ int64       // of the whole segment, on its first line
}

// ClusterUsage reads the cluster's usage, a line per segment and price, by lease and time. The lines' costs add up to
// Cost to the last nano-unit.
func ClusterUsage(ctx context.Context, q *dbq.Queries, cluster id.Cluster) (Usage, error) {
	ids, err := q.LeaseIDsOfCluster(ctx, cluster)
	if err != nil {
		return Usage{}, fmt.Errorf("read usage: %w", err)
	}
	leases, err := readLeases(ctx, q, ids)
	if err != nil {
		return Usage{}, err
	}
	// Segments and windows are read after the meters: they show at least what was posted.
	segs, err := segmentsOf(ctx, q, ids)
	if err != nil {
		return Usage{}, err
	}
	now, err := q.DatabaseTime(ctx)
	if err != nil {
		return Usage{}, fmt.Errorf("read the clock: %w", err)
	}
	u := Usage{Settled: len(leases) > 0, ByRank: map[int]money.Nano{}}
	var billed, soFar Set
	for _, l := range leases {
		lines, set := itemise(l, segs[l.ID])
		for _, line := range lines {
			u.Cost += line.Cost
			u.GPUMS += line.MS * int64(line.GPUs)
		}
		u.Lines = append(u.Lines, lines...)
		u.Currency, u.Posted, u.EnergyMJ = l.Currency, u.Posted+l.meter.Posted, u.EnergyMJ+l.energy
		u.Settled = u.Settled && l.settled()
		sum := l.soFar(now.UnixMilli())
		u.Estimate += sum
		u.ByRank[int(l.Rank)] += sum
		billed = billed.Union(set)
		soFar = soFar.Union(set).Union(l.unproven(now.UnixMilli()))
	}
	u.BillableMS, u.EstimateMS = billed.Len(), soFar.Len()
	return u, nil
}

// itemise cuts a lease's segments, sorted by start, into lines. Where segments overlap the earlier has the time.
func itemise(l *lease, segs []dbq.SegmentsOfLeasesRow) (lines []UsageLine, billed Set) {
	due, _ := billable(l.windows, l.terms.Life)
	sum := new(big.Int)
	var before, hostBefore money.Nano
	through := int64(0)
	for _, s := range segs {
		own := due.Clip(Interval{Start: max(s.StartMs, through), End: s.EndMs})
		through = max(through, s.EndMs)
		energy := s.EnergyMj
		for k, p := range l.terms.Prices {
			part := own.Clip(span(l.terms.Prices, k))
			if len(part) == 0 {
				continue
			}
			ms := part.Len()
			sum.Add(sum, new(big.Int).Mul(big.NewInt(int64(p.Rate)), big.NewInt(ms)))
			total := money.Posted(sum)
			host := money.Share(total, l.terms.SharePPM)
			lines = append(lines, UsageLine{
				Lease: l.ID, Host: l.HostID, Rank: int(l.Rank), Epoch: int(s.Epoch), BootID: s.BootID, Seq: s.Seq,
				From: time.UnixMilli(part[0].Start).UTC(), To: time.UnixMilli(part[len(part)-1].End).UTC(), MS: ms,
				GPUs: int(l.GPUCount), Rate: p.Rate, Cost: total - before, HostPart: host - hostBefore, EnergyMJ: energy,
			})
			before, hostBefore, energy = total, host, 0
			billed = append(billed, part...)
		}
	}
	return lines, SetOf(billed...)
}
