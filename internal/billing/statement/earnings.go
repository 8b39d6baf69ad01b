package statement

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Earnings is what a host earned.
type Earnings = client.Earnings

// LeaseEarning is one lease's part.
type LeaseEarning = client.LeaseEarning

// DayEarning is one day's part.
type DayEarning = client.DayEarning

// HostEarnings returns what one of the org's hosts earned; another org's is fault.NotFound.
func (s *Statements) HostEarnings(ctx context.Context, org id.Org, host id.Host) (Earnings, error) {
	if err := ownHost(ctx, s.d.Q, org, host); err != nil {
		return Earnings{}, err
	}
	zone, err := zoneOf(ctx, s.d.Q, org)
	if err != nil {
		return Earnings{}, err
	}
	leases, err := metering.HostEarnings(ctx, s.d.Q, host, zone)
	if err != nil {
		return Earnings{}, err
	}
	return earnings(leases), nil
}

// ownHost is fault.NotFound for another org's host.
func ownHost(ctx context.Context, q *dbq.Queries, org id.Org, host id.Host) error {
	owner, err := q.HostOwner(ctx, host)
	if err != nil && !db.NoRows(err) {
		return fmt.Errorf("read owner of %s: %w", host, err)
	}
	if err != nil || owner != org {
		return fault.New(fault.NotFound, "host not found")
	}
	return nil
}

// zoneOf returns the time zone in which the org's days begin.
func zoneOf(ctx context.Context, q *dbq.Queries, org id.Org) (*time.Location, error) {
	return account.ZoneOf(ctx, q, org)
}

func earnings(leases []metering.LeaseEarning) Earnings {
	e := Earnings{Leases: make([]LeaseEarning, 0, len(leases)), Days: []DayEarning{}}
	days := map[string]money.Nano{}
	for _, l := range slices.Backward(leases) {
		e.Currency = l.Currency
		e.Total += l.Earned
		e.Pending += max(0, l.Expected-l.Earned)
		e.Leases = append(e.Leases, LeaseEarning{
			Lease: l.Lease, GPUModel: l.GPUModel, GPUs: l.GPUs, StartedAt: l.CreatedAt, EndedAt: l.EndedAt,
			Seconds: Seconds(l.MS), Earned: l.Earned, Returned: l.Returned, Frozen: l.Frozen,
		})
		e.Returned += l.Returned
		for _, d := range l.Days {
			days[d.Day] += d.Earned
		}
	}
	for day, n := range days {
		e.Days = append(e.Days, DayEarning{Day: day, Earned: n})
	}
	slices.SortFunc(e.Days, func(a, b DayEarning) int { return strings.Compare(b.Day, a.Day) })
	return e
}
