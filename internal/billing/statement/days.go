package statement

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// maxDays bounds a statement.
const maxDays = 366

// days are those of a statement, in the zone of its org.
type days struct {
	from, to   string    // the first and the last, YYYY-MM-DD
	first, end time.Time // the beginning of from, and the end of to
	zone       *time.Location
	now        time.Time // PostgreSQL's clock
}

// daysOf reads the first and the last day of an org's statement, YYYY-MM-DD; "" is the first of this month, and today.
// Fault: Invalid.
func (s *Statements) daysOf(ctx context.Context, org id.Org, from, to string) (d days, err error) {
	if d.zone, err = zoneOf(ctx, s.d.Q, org); err != nil {
		return d, err
	}
	if d.now, err = s.d.Q.DatabaseTime(ctx); err != nil {
		return d, fmt.Errorf("read the clock: %w", err)
	}
	today := d.now.In(d.zone)
	d.from, d.to = cmp.Or(from, today.Format("2006-01-")+"01"), cmp.Or(to, today.Format(time.DateOnly))
	if d.first, err = time.ParseInLocation(time.DateOnly, d.from, d.zone); err != nil {
		return d, fault.InvalidField("query.from", "must be a day, such as 2026-01-31")
	}
	last, err := time.ParseInLocation(time.DateOnly, d.to, d.zone)
	if err != nil {
		return d, fault.InvalidField("query.to", "must be a day, such as 2026-01-31")
	}
	if last.Before(d.first) || last.After(d.first.AddDate(0, 0, maxDays)) {
		return d, fault.InvalidField("query.to", "must be the first day or later, and at most %d days later", maxDays)
	}
	d.end = last.AddDate(0, 0, 1)
	return d, nil
}

// dayUsage is what one lease was billed on one day at one price.
type dayUsage struct {
	day      string // YYYY-MM-DD
	rate     money.Micro
	seconds  Seconds
	cost     money.Nano
	hostPart money.Nano // of cost
	energy   int64      // mJ
}

// usage sums a lease's lines by day and price, in order. A segment counts to the day on which it begins.
func (d days) usage(l metering.LeaseStatement) (out []dayUsage) {
	for _, line := range l.Lines {
		if line.From.Before(d.first) || !line.From.Before(d.end) {
			continue
		}
		day := line.From.In(d.zone).Format(time.DateOnly)
		if n := len(out); n == 0 || out[n-1].day != day || out[n-1].rate != line.Rate {
			out = append(out, dayUsage{day: day, rate: line.Rate})
		}
		u := &out[len(out)-1]
		u.seconds += Seconds(line.MS)
		u.cost += line.Cost
		u.hostPart += line.HostPart
		u.energy += line.EnergyMJ
	}
	return out
}
