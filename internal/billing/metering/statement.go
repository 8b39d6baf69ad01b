package metering

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// maxStatement bounds the leases of one statement.
const maxStatement = 2000

// LeaseStatement is all of a lease's bill, with what it was made of and what was not billed.
type LeaseStatement struct {
	Lease    id.Lease
	Cluster  id.Cluster
	Host     id.Host
	Rank     int
	GPUModel string
	GPUs     int
	From     time.Time
	Until    *time.Time // nil: it lives
	Prices   []FrozenPrice
	Lines    []UsageLine
	// UnprovenMS is time within the cluster's windows for which the host has signed nothing (yet): not billed.
	UnprovenMS int64
	// OutsideMS is time of the lease's life, up to now, outside all windows (starting, suspended): not billed.
	OutsideMS int64
	Settled   bool
	SharePPM  int64 // the host's part of every charge, in millionths
	Frozen    bool  // conflicting segments: its money waits
	// HostUnposted is what of the lines' HostPart is not in the ledger yet.
	HostUnposted money.Nano
}

// FrozenPrice is a lease's price from a moment on, and what it is made of, as it was agreed.
type FrozenPrice struct {
	From  time.Time // zero: from the beginning
	Rate  money.Micro
	Items []PriceItem
}

// RenterStatement reads the org's leases that lived between the two moments, oldest first. More than 2,000 of them are
// fault.TooLarge.
func RenterStatement(ctx context.Context, q *dbq.Queries, org id.Org, from, to time.Time) ([]LeaseStatement, error) {
	ids, err := q.LeaseIDsOfRenter(ctx, dbq.LeaseIDsOfRenterParams{
		RenterOrgID: org,
		FromTime:    from,
		ToTime:      to,
		MaxRows:     maxStatement + 1,
	})
	if err != nil {
		return nil, fmt.Errorf("read leases of %s: %w", org, err)
	}
	return statement(ctx, q, ids)
}

// OperatorStatement reads the leases on the org's hosts, or on one of them (zero: on all), that lived between the two
// moments, oldest first. More than 2,000 of them are fault.TooLarge.
func OperatorStatement(ctx context.Context, q *dbq.Queries, org id.Org, host id.Host, from,
	to time.Time) ([]LeaseStatement, error) {
	ids, err := q.LeaseIDsOfOperator(ctx, dbq.LeaseIDsOfOperatorParams{
		HostOrgID: org,
		OnlyHost:  raw(host),
		FromTime:  from,
		ToTime:    to,
		MaxRows:   maxStatement + 1,
	})
	if err != nil {
		return nil, fmt.Errorf("read leases on hosts of %s: %w", org, err)
	}
	return statement(ctx, q, ids)
}

func statement(ctx context.Context, q *dbq.Queries, ids []id.Lease) ([]LeaseStatement, error) {
	if len(ids) > maxStatement {
		return nil, fault.New(fault.TooLarge, "more than %d leases in this period: request a shorter one", maxStatement)
	}
	leases, err := readLeases(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	segs, err := segmentsOf(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	prices, err := q.FrozenPrices(ctx, idList(ids...))
	if err != nil {
		return nil, fmt.Errorf("read prices: %w", err)
	}
	frozen := map[id.Lease][]FrozenPrice{}
	for _, p := range prices {
		f := FrozenPrice{Rate: p.Rate}
		if p.FromMs > 0 {
			f.From = time.UnixMilli(p.FromMs).UTC()
		}
		if err := json.Unmarshal(p.Items, &f.Items); err != nil {
			return nil, fmt.Errorf("decode price items of %s: %w", p.LeaseID, err)
		}
		frozen[p.LeaseID] = append(frozen[p.LeaseID], f)
	}
	now, err := q.DatabaseTime(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	out := make([]LeaseStatement, len(leases))
	for i, l := range leases {
		lines, billed := itemise(l, segs[l.ID])
		unposted := -l.meter.HostPosted // read before the segments: they show at least what was posted
		for _, line := range lines {
			unposted += line.HostPart
		}
		due, _ := billable(l.windows, l.terms.Life)
		life := Interval{Start: l.terms.Life.Start, End: min(l.terms.Life.End, now.UnixMilli())}
		out[i] = LeaseStatement{
			Lease: l.ID, Cluster: l.ClusterID, Host: l.HostID, Rank: int(l.Rank), GPUModel: l.GPUModel, GPUs: int(l.GPUCount),
			From: l.CreatedAt, Until: l.EndedAt, Prices: frozen[l.ID], Lines: lines, Settled: l.settled(),
			SharePPM: l.terms.SharePPM, Frozen: l.frozen, HostUnposted: unposted,
			UnprovenMS: due.Minus(billed).Len(), OutsideMS: max(0, life.Len()-due.Len()),
		}
	}
	return out, nil
}
