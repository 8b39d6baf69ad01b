package metering

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Forecast is what it would cost a host's operator if everything that runs on it were lost now by their fault.
type Forecast struct {
	Leases   int
	Currency string
	Credit   money.Nano // what renters would get back
	HostPart money.Nano // of Credit, taken from the operator
}

// ForecastLoss reads what would be credited for the leases that have not ended on a host, as of the segments that are
// here: a host that has not reported for a while owes a little more. A start that has not come to run costs nobody
// anything.
func ForecastLoss(ctx context.Context, q *dbq.Queries, host id.Host) (Forecast, error) {
	var f Forecast
	ids, err := q.RunningLeasesOfHost(ctx, host)
	if err != nil {
		return f, fmt.Errorf("metering: leases of %s: %w", host, err)
	}
	f.Leases = len(ids)
	leases, err := readLeases(ctx, q, ids)
	if err != nil {
		return f, err
	}
	now, err := q.DatabaseTime(ctx)
	if err != nil {
		return f, fmt.Errorf("metering: the time: %w", err)
	}
	span := Interval{Start: now.Add(-CreditSpan).UnixMilli(), End: now.UnixMilli()}
	for _, l := range leases {
		segs, err := q.SegmentsWithin(ctx, l.ID, span.Start, span.End)
		if err != nil {
			return f, fmt.Errorf("metering: segments of %s: %w", l.ID, err)
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
