package statement

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// OperatorPeriod is a statement of what an operator's hosts earned over some days. Its lines are exact: those of one
// day after another add up to what was earned, and each is billed = earned + fee.
type OperatorPeriod client.EarningsStatement

// OperatorGroup is the sum of the lines of one host, day or lease.
type OperatorGroup = client.EarningsGroup

// OperatorLine is one lease at one price on one day. A segment counts to the day on which it begins.
type OperatorLine = client.EarningsLine

// OperatorLease is how one lease's money stands now, over its whole life.
type OperatorLease = client.EarningsLease

// OperatorReturn is what went back to a renter.
type OperatorReturn = client.EarningsReturn

// OperatorRequest selects a statement: of all hosts of Org or of one, from one day to another, both included,
// YYYY-MM-DD in the org's zone ("": the first of this month, and today), summed By host (""), day or lease.
type OperatorRequest struct {
	Org      id.Org
	Host     id.Host // zero: all
	Currency string
	From, To string
	By       string
	Holdback time.Duration
}

// OperatorStatement returns the statement of an operator. Faults: Invalid, NotFound (another's host), TooLarge.
func (s *Statements) OperatorStatement(ctx context.Context, r OperatorRequest) (OperatorPeriod, error) {
	if !r.Host.IsZero() {
		if err := ownHost(ctx, s.d.Q, r.Org, r.Host); err != nil {
			return OperatorPeriod{}, err
		}
	}
	d, err := s.daysOf(ctx, r.Org, r.From, r.To)
	if err != nil {
		return OperatorPeriod{}, err
	}
	p := OperatorPeriod{
		From:     d.from,
		To:       d.to,
		Zone:     d.zone.String(),
		Currency: r.Currency,
		By:       cmp.Or(r.By, "host"),
		Holdback: int64(r.Holdback / time.Second),
		Groups:   []OperatorGroup{},
		Lines:    []OperatorLine{},
		Leases:   []OperatorLease{},
		Returns:  []OperatorReturn{},
	}
	if !slices.Contains([]string{"host", "day", "lease"}, p.By) {
		return OperatorPeriod{}, fault.InvalidField("query.by", "must be host, day or lease")
	}
	leases, err := metering.OperatorStatement(ctx, s.d.Q, r.Org, r.Host, d.first, d.end)
	if err != nil {
		return OperatorPeriod{}, err
	}
	if err := p.fill(ctx, s.d.Q, leases, d); err != nil {
		return OperatorPeriod{}, err
	}
	if err := p.holdback(ctx, s.d.Q, r, leases, d.now); err != nil {
		return OperatorPeriod{}, err
	}
	if err := p.returns(ctx, s.d.Q, r, d.first, d.end); err != nil {
		return OperatorPeriod{}, err
	}
	p.Net = p.Earned - p.Returned
	if err := p.standby(ctx, s.d.Q, r, d.first, d.end); err != nil {
		return OperatorPeriod{}, err
	}
	p.group()
	return p, nil
}

// fill adds the lines of leases, and the leases that have any or still live.
func (p *OperatorPeriod) fill(ctx context.Context, q *dbq.Queries, leases []metering.LeaseStatement, d days) error {
	ids := make([]id.Host, len(leases))
	for i, l := range leases {
		ids[i] = l.Host
	}
	hosts, err := namesOf(ctx, q, ids)
	if err != nil {
		return err
	}
	var energy int64
	for _, l := range leases {
		used := d.usage(l)
		for _, u := range used {
			fee := u.cost - u.hostPart
			p.Lines = append(p.Lines, OperatorLine{
				Day:          u.day,
				HostID:       l.Host,
				HostName:     hosts[l.Host],
				Lease:        l.Lease,
				GPUModel:     l.GPUModel,
				GPUs:         l.GPUs,
				Seconds:      u.seconds,
				PricePerHour: u.rate,
				SharePPM:     l.SharePPM,
				Billed:       u.cost,
				Fee:          fee,
				Earned:       u.hostPart,
				EnergyWh:     wattHours(u.energy),
			})
			p.Billed, p.Earned, p.Fee = p.Billed+u.cost, p.Earned+u.hostPart, p.Fee+fee
			energy += u.energy
		}
		if len(used) > 0 || l.Until == nil {
			p.Leases = append(p.Leases, operatorLease(l, hosts[l.Host]))
		}
	}
	p.EnergyWh = wattHours(energy)
	return nil
}

// operatorLease returns how a lease's money stands, without what is in the holdback.
func operatorLease(l metering.LeaseStatement, host string) OperatorLease {
	out := OperatorLease{
		Lease:     l.Lease,
		HostID:    l.Host,
		HostName:  host,
		StartedAt: l.From,
		EndedAt:   l.Until,
		Settled:   l.Settled,
		Frozen:    l.Frozen,
		NotBooked: max(0, l.HostUnposted),
	}
	for _, u := range l.Lines {
		out.Earned += u.HostPart
	}
	return out
}

// holdback fills in what of each lease's earnings was booked so recently that it is not payable yet.
func (p *OperatorPeriod) holdback(ctx context.Context, q *dbq.Queries, r OperatorRequest,
	leases []metering.LeaseStatement, now time.Time) error {
	if len(leases) == 0 {
		return nil
	}
	cutoff := now.Add(-r.Holdback)
	var clusters []string
	for _, l := range leases {
		clusters = append(clusters, l.Cluster.String())
	}
	slices.Sort(clusters)
	clusters = slices.Compact(clusters)
	rows, err := q.EarnedByLeaseSince(ctx, dbq.EarnedByLeaseSinceParams{
		Clusters: clusters,
		OrgID:    r.Org,
		Currency: r.Currency,
		FromID:   firstID(cutoff),
		Cutoff:   cutoff,
	})
	if err != nil {
		return fmt.Errorf("read earnings of %s since %s: %w", r.Org, cutoff, err)
	}
	at := make(map[string]int, len(p.Leases))
	for i, l := range p.Leases {
		at[l.Lease.String()] = i
	}
	for _, row := range rows {
		if i, ok := at[row.Lease]; ok {
			at := row.LastAt.Add(r.Holdback).UTC()
			p.Leases[i].InHoldback, p.Leases[i].PayableAt = money.Nano(row.Amount), &at
		}
	}
	for i := range p.Leases {
		if l := &p.Leases[i]; l.NotBooked > 0 && !l.Frozen {
			at := now.Add(r.Holdback).UTC()
			l.PayableAt = &at
		}
	}
	return nil
}

// firstID is before all entries made at t or later, by servers whose clocks are less than an hour behind.
func firstID(t time.Time) pgtype.UUID {
	var b uuid.UUID
	binary.BigEndian.PutUint64(b[:8], uint64(max(0, t.Add(-time.Hour).UnixMilli()))<<16)
	return pgtype.UUID{Bytes: b, Valid: true}
}

func (p *OperatorPeriod) returns(ctx context.Context, q *dbq.Queries, r OperatorRequest, from, to time.Time) error {
	rows, err := q.ReturnedByOperator(ctx, dbq.ReturnedByOperatorParams{
		OrgID:    r.Org,
		Currency: r.Currency,
		FromID:   firstID(from),
		FromTime: from,
		ToTime:   to,
	})
	if err != nil {
		return fmt.Errorf("read returns of %s: %w", r.Org, err)
	}
	for _, row := range rows {
		x := OperatorReturn{
			ID:     row.ID,
			At:     row.CreatedAt.UTC(),
			Kind:   row.Kind,
			Why:    row.Memo,
			Amount: money.Nano(row.Amount),
		}
		lease, err := id.Parse[id.Lease](leaseInKey(row.ChargeKey))
		if err == nil {
			x.Lease = lease.String()
		}
		if wanted, err := r.covers(ctx, q, lease); err != nil {
			return err
		} else if !wanted {
			continue
		}
		p.Returns = append(p.Returns, x)
		p.Returned += x.Amount
	}
	return nil
}

// covers reports whether a lease ran on the host of which the statement is; for a statement of all hosts it is true.
func (r OperatorRequest) covers(ctx context.Context, q *dbq.Queries, lease id.Lease) (bool, error) {
	if r.Host.IsZero() {
		return true, nil
	}
	host, err := q.HostOfLease(ctx, lease)
	if err != nil && !db.NoRows(err) {
		return false, fmt.Errorf("read host of lease %s: %w", lease, err)
	}
	return err == nil && host == r.Host, nil
}

// leaseInKey returns the lease in the key of a charge, usage:LEASE:TOTAL.
func leaseInKey(key string) string {
	rest, _ := strings.CutPrefix(key, "usage:")
	lease, _, _ := strings.Cut(rest, ":")
	return lease
}

func (p *OperatorPeriod) group() {
	at := map[string]int{}
	for _, l := range p.Lines {
		key, name := l.HostID.String(), l.HostName
		switch p.By {
		case "day":
			key, name = l.Day, l.Day
		case "lease":
			key, name = l.Lease.String(), l.Lease.Short()+" on "+l.HostName
		}
		i, ok := at[key]
		if !ok {
			i = len(p.Groups)
			at[key] = i
			p.Groups = append(p.Groups, OperatorGroup{Key: key, Name: name})
		}
		g := &p.Groups[i]
		g.Seconds, g.Billed, g.Fee, g.Earned = g.Seconds+l.Seconds, g.Billed+l.Billed, g.Fee+l.Fee, g.Earned+l.Earned
	}
	if p.By == "day" {
		slices.SortFunc(p.Groups, func(a, b OperatorGroup) int { return strings.Compare(a.Key, b.Key) })
	}
}

// CSV writes the lines, what was returned with a minus, and what was received for standing by, as one table with a
// heading: the column earned adds up to Net and StandbyReceived. Texts that a spreadsheet would compute are set off by
// an apostrophe.
func (p OperatorPeriod) CSV(w io.Writer) error {
	zone, err := time.LoadLocation(p.Zone)
	if err != nil {
		zone = time.UTC
	}
	rows := [][]string{{"day", "what", "host_id", "host", "lease_id", "gpu_model", "gpus", "seconds", "price_per_hour_" +
		p.Currency,
		"host_share_ppm", "billed_" + p.Currency, "fee_" + p.Currency, "earned_" + p.Currency, "energy_wh"}}
	for _, l := range p.Lines {
		rows = append(rows, []string{l.Day, "usage", l.HostID.String(), plain(l.HostName), l.Lease.String(),
			plain(l.GPUModel), fmt.Sprint(l.GPUs),
			l.Seconds.String(), l.PricePerHour.String(), fmt.Sprint(l.SharePPM), l.Billed.String(), l.Fee.String(),
			l.Earned.String(), l.EnergyWh})
	}
	for _, x := range p.Returns {
		rows = append(rows, []string{x.At.In(zone).Format(time.DateOnly), x.Kind, "", plain(x.Why), x.Lease, "", "", "", "",
			"", "", "", (-x.Amount).String(), ""})
	}
	for _, x := range p.Standby {
		if x.Amount > 0 { // what a bond paid is no earning
			rows = append(rows, []string{x.At.In(zone).Format(time.DateOnly), x.Kind, "", plain(x.Why), x.Lease, "", "", "", "",
				"", "", "", x.Amount.String(), ""})
		}
	}
	return csv.NewWriter(w).WriteAll(rows)
}
