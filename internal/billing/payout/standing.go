package payout

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/billing/claim"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Standing is what an operator's earnings have come to.
type Standing struct {
	Pending money.Nano // earned and booked, in the holdback
	// NotBooked is measured and waits to be booked: in none of the others. What is booked between the two reads is missing
	// from both for once; it is never in both.
	NotBooked money.Nano
	// earned before the holdback, from renters who are linked with the operator: waits for a decision
	InReview money.Nano
	Payable  money.Nano // the rest, less what was given back beyond Pending; never below 0
	// of both, from payments that are disputed now: neither made payable nor paid out. What is in review is not among it
	Disputed money.Nano
	Sending  money.Nano // on its way
	Paid     money.Nano // sent, less what was taken back
	Currency string
	Holdback time.Duration
	Frozen   []id.Lease // while there are any, nothing becomes payable
}

// Of reads an operator's standing.
func Of(ctx context.Context, q *dbq.Queries, org id.Org, currency string, holdback time.Duration) (Standing, error) {
	s := Standing{Currency: currency, Holdback: holdback}
	var err error
	if s.Pending, err = ledger.Balance(ctx, q, ledger.HostPending(org, currency)); err != nil {
		return s, err
	}
	if s.NotBooked, err = metering.OperatorUnposted(ctx, q, org); err != nil { // after what is booked
		return s, err
	}
	if s.Payable, err = ledger.Balance(ctx, q, ledger.HostPayable(org, currency)); err != nil {
		return s, err
	}
	c, err := claim.Of(ctx, q, org, currency)
	if err != nil {
		return s, err
	}
	s.InReview = c.InReview
	if s.Pending -= s.InReview; s.Pending < 0 {
		s.Payable, s.Pending = max(0, s.Payable+s.Pending), 0
	}
	s.Disputed = min(c.Disputed, s.Pending+s.Payable)
	t, err := q.PayoutTotals(ctx, org, currency)
	if err != nil {
		return s, fmt.Errorf("read payouts of %s: %w", org, err)
	}
	s.Paid, s.Sending = money.Nano(t.Paid), money.Nano(t.Sending)
	s.Frozen, err = metering.Frozen(ctx, q, org)
	return s, err
}

// Standing reads an operator's standing.
func (p *Payouts) Standing(ctx context.Context, org id.Org) (Standing, error) {
	h, err := p.HoldbackOf(ctx, org)
	if err != nil {
		return Standing{}, err
	}
	return Of(ctx, p.d.Q, org, p.cfg.Currency, h)
}

// HoldbackOf returns how long what an operator earns now waits before it becomes payable.
func (p *Payouts) HoldbackOf(ctx context.Context, org id.Org) (time.Duration, error) {
	now, err := p.d.Q.DatabaseTime(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	first, err := firstEarned(ctx, p.d.Q, org, p.cfg.Currency, now)
	if err != nil {
		return 0, err
	}
	return Holdback{p.cfg.Holdback, p.cfg.NewHoldback}.of(first, now), nil
}

// Minimum returns the least that is paid out.
func (p *Payouts) Minimum() money.Nano { return p.cfg.Minimum }
