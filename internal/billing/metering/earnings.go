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
	Frozen    bool       // conflicting segments: nothing is posted until an admin has looked
	Days      []DayEarning
}

// DayEarning is the part of it that was worked on one day. Segments count to the day on which they begin.
type DayEarning struct {
	Day    string // YYYY-MM-DD
	Earned money.Nano
}

// HostEarnings reads what the host's leases earned, oldest first; days are those of zone. Each lease's days add up to
// what it earned.
func HostEarnings(ctx context.Context, q *dbq.Queries, host id.Host, zone *time.Location) ([]LeaseEarning, error) {
	ids, err := q.LeaseIDsOfHost(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("metering: leases of %s: %w", host, err)
	}
	leases, err := readLeases(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	segs, err := segmentsOf(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	credits, err := q.ServiceCreditsOfHost(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("metering: credits of %s: %w", host, err)
	}
	returned := map[id.Lease]money.Nano{}
	for _, c := range credits {
		returned[c.LeaseID] = money.Nano(c.HostPart)
	}
	now, err := q.DatabaseTime(ctx)
	if err != nil {
		return nil, fmt.Errorf("metering: clock: %w", err)
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

// segmentsOf is the stored segments of each lease, by start.
func segmentsOf(ctx context.Context, q *dbq.Queries, ids []id.Lease) (map[id.Lease][]dbq.SegmentsOfLeasesRow, error) {
	rows, err := q.SegmentsOfLeases(ctx, idList(ids...))
	if err != nil {
		return nil, fmt.Errorf("metering: segments: %w", err)
	}
	out := map[id.Lease][]dbq.SegmentsOfLeasesRow{}
	for _, s := range rows {
		out[s.LeaseID] = append(out[s.LeaseID], s)
	}
	return out, nil
}
