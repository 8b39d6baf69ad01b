// Package claim adds up what may have to be given back of an operator's money: what its renters' disputes and reviews
// hold back of its earnings, and what disputes of its own payments miss.
//
// An operator's whole money answers for that: what is pending, what is payable, and what is kept as the bond of its
// hosts. Pending earnings answer first, then payable ones, then the bond.
package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Claims is what may have to be given back of an operator's money. The parts do not overlap.
type Claims struct {
	Disputed money.Nano // earned with payments that are disputed, or were lost and are in no review yet
	InReview money.Nano // earned, and waits for a person's decision
	Owed     money.Nano // claimed by disputes of the operator's own payments, and neither set aside nor repaid
}

// Of reads the claims on an operator's money. Under the lock of its host_pending account, reviews do not change.
func Of(ctx context.Context, q *dbq.Queries, org id.Org, currency string) (c Claims, err error) {
	all, err := Disputes(ctx, q, currency, time.Time{}, org)
	if err != nil {
		return c, err
	}
	_, c.Disputed = Disputed(all[org], false)
	held, err := q.HeldForReview(ctx, org, currency)
	if err != nil {
		return c, fmt.Errorf("read what is in review of %s: %w", org, err)
	}
	c.InReview = money.Nano(held)
	c.Owed, err = Owed(ctx, q, org, currency)
	return c, err
}

// Owed reads what disputes of an organisation's own payments claim, and is neither set aside nor repaid.
func Owed(ctx context.Context, q *dbq.Queries, org id.Org, currency string) (money.Nano, error) {
	own, err := q.DisputeClaims(ctx, org, currency)
	if err != nil {
		return 0, fmt.Errorf("read claims on %s: %w", org, err)
	}
	return money.Nano(own.Short + own.Debt), nil
}

// Payable returns what can be paid out to an operator who has so much pending and payable: what is payable, less what
// was given back beyond what is pending, less what is disputed beyond what is pending and in no review (that much has
// become payable before the dispute), less what the operator owes.
func (c Claims) Payable(pending, payable money.Nano) money.Nano {
	pending -= c.InReview
	return max(0, payable+min(0, pending)-max(0, c.Disputed-max(0, pending))-c.Owed)
}

// OnBond returns how much of an operator's bond is claimed: what pending and payable earnings do not cover of what is
// disputed or in review, and what was given back beyond them. What the operator owes is reserved in the bond itself.
func (c Claims) OnBond(pending, payable money.Nano) money.Nano {
	return max(0, c.Disputed+c.InReview-pending-payable)
}
