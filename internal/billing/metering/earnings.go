package metering

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// LeaseEarning is what one lease earned for the operator of its host.
type LeaseEarning struct {
	Lease     id.Lease
	GPUModel  string
	GPUs      int
	Currency  string
	CreatedAt time.Time
	EndedAt   *time.Time
	MS        int64      // billed
	Earned    money.Nano // the host's part of all time proven so far
	Expected  money.Nano // Earned, and the part of time up to now that may still be proven
	Returned  money.Nano // of Earned, given back to the renter because the host failed
	Frozen    bool       // conflicting segments: nothing is posted until an admin has decided
	Days      []DayEarning
}

// DayEarning is the part of it that was worked on one day. Segments count to the day on which they begin.
type DayEarning struct {
	Day    string // YYYY-MM-DD
	Earned money.Nano
}

// itemisedFor is for how long after its end the days of a lease's earnings are shown. They are read from its segments.
const itemisedFor = 32 * 24 * time.Hour

// HostEarnings reads what the host's leases earned, oldest first; days are those of zone. The days of a lease that
// ended within itemisedFor add up to what it earned; older leases have none.
func HostEarnings(ctx context.Context, q *dbq.Queries, host id.Host, zone *time.Location) ([]LeaseEarning, error) {
	ids, err := q.LeaseIDsOfHost(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("read leases of %s: %w", host, err)
	}
	leases, err := readLeases(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	now, err := q.DatabaseTime(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	old := func(l *lease) bool { return l.settled() && l.EndedAt != nil && now.Sub(*l.EndedAt) > itemisedFor }
	ids = ids[:0]
	for _, l := range leases {
		if !old(l) {
			ids = append(ids, l.ID)
		}
	}
	segs, err := segmentsOf(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	credits, err := q.ServiceCreditsOfHost(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("read credits of %s: %w", host, err)
	}
	returned := map[id.Lease]money.Nano{}
	for _, c := range credits {
		returned[c.LeaseID] = money.Nano(c.HostPart)
	}
	out := make([]LeaseEarning, len(leases))
	for i, l := range leases {
		e := LeaseEarning{
			Lease:     l.ID,
			GPUModel:  l.GPUModel,
			GPUs:      int(l.GPUCount),
			Currency:  l.Currency,
			CreatedAt: l.CreatedAt,
			EndedAt:   l.EndedAt,
			Expected:  money.Share(l.soFar(now.UnixMilli()), l.terms.SharePPM),
			Frozen:    l.frozen,
			Returned:  returned[l.ID],
		}
		if old(l) {
			e.MS, e.Earned = l.meter.PostedBilledMS, l.meter.HostPosted
		}
		lines, _ := itemise(l, segs[l.ID])
		var cost money.Nano
		for _, line := range lines {
			cost += line.Cost
			e.MS += line.MS
			earned := money.Share(cost, l.terms.SharePPM)
			day := line.From.In(zone).Format(time.DateOnly)
			if n := len(e.Days); n == 0 || e.Days[n-1].Day != day {
				e.Days = append(e.Days, DayEarning{Day: day})
			}
			e.Days[len(e.Days)-1].Earned += earned - e.Earned
			e.Earned = earned
		}
		out[i] = e
	}
	return out, nil
}

// segmentsOf returns the stored segments of each lease, by start.
func segmentsOf(ctx context.Context, q *dbq.Queries, ids []id.Lease) (map[id.Lease][]dbq.SegmentsOfLeasesRow, error) {
	rows, err := q.SegmentsOfLeases(ctx, idList(ids...))
	if err != nil {
		return nil, fmt.Errorf("read segments: %w", err)
	}
	out := map[id.Lease][]dbq.SegmentsOfLeasesRow{}
	for _, s := range rows {
		out[s.LeaseID] = append(out[s.LeaseID], s)
	}
	return out, nil
}

// Forecast is what it would cost a host's operator if everything that runs on it were lost now by their fault.
type Forecast struct {
	Leases   int
	Currency string
	Credit   money.Nano // what renters would get back
	HostPart money.Nano // of Credit, taken from the operator
}

// ForecastLoss returns what would be credited for the leases that have not ended on a host, by the segments that have
// arrived: a host that has not reported for a while owes a little more. A lease that has not started to run costs
// nothing.
func ForecastLoss(ctx context.Context, q *dbq.Queries, host id.Host) (Forecast, error) {
	var f Forecast
	ids, err := q.RunningLeasesOfHost(ctx, host)
	if err != nil {
		return f, fmt.Errorf("read leases of %s: %w", host, err)
	}
	f.Leases = len(ids)
	leases, err := readLeases(ctx, q, ids)
	if err != nil {
		return f, err
	}
	now, err := q.DatabaseTime(ctx)
	if err != nil {
		return f, fmt.Errorf("read the clock: %w", err)
	}
	span := Interval{Start: now.Add(-CreditSpan).UnixMilli(), End: now.UnixMilli()}
	for _, l := range leases {
		segs, err := q.SegmentsWithin(ctx, l.ID, span.Start, span.End)
		if err != nil {
			return f, fmt.Errorf("read segments of %s: %w", l.ID, err)
		}
		due, _ := billable(l.windows, l.terms.Life)
		var proven []Interval
		for _, s := range segs {
			proven = append(proven, Interval{Start: s.StartMs, End: s.EndMs})
		}
		amount := money.Posted(numerator(due.Intersect(SetOf(proven...)).Clip(span), l.terms.Prices))
		f.Currency = l.Currency
		f.Credit += amount
		f.HostPart += money.Share(amount, l.terms.SharePPM)
	}
	return f, nil
}
