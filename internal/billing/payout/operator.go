package payout

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// Fees are the platform's part of what operators' hosts earn; package market has them.
type Fees interface {
	Fee(ctx context.Context, org id.Org) (ppm int, err error)
	SetFee(ctx context.Context, tx *db.Tx, who account.Principal, org id.Org, ppm int, reason string) error
}

// OperatorChange is what an admin changes of an operator. A nil field stays as it is.
type OperatorChange struct {
	FeePPM  *int   // of new leases, in millionths
	Stopped *bool  // whether payouts are stopped
	Reason  string // 1 to 500 bytes; the operator reads it
}

// Operator is an operator's fee and payout account.
type Operator struct {
	Org     id.Org
	FeePPM  int // of new leases
	Account Account
}

// ChangeOperator changes the fee on an operator's new leases, or stops or resumes their payouts, and returns both as
// they are then. Only an admin may. Faults: Forbidden, NotFound (no such organisation, or no payout account), Invalid.
func (p *Payouts) ChangeOperator(ctx context.Context, who account.Principal, fees Fees, org id.Org, c OperatorChange,
	once idem.Request) (Operator, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return Operator{}, idem.Outcome{}, err
	}
	_, done, err := idem.Once(ctx, p.d, once.ByReference(), func(ctx context.Context, tx *db.Tx) (id.Org, error) {
		if c.FeePPM != nil {
			if err := fees.SetFee(ctx, tx, who, org, *c.FeePPM, c.Reason); err != nil {
				return org, err
			}
		}
		if c.Stopped == nil {
			return org, nil
		}
		return org, p.stop(ctx, tx, who, org, *c.Stopped, c.Reason)
	})
	if err != nil {
		return Operator{}, idem.Outcome{}, err
	}
	out := Operator{Org: org}
	if out.FeePPM, err = fees.Fee(ctx, org); err != nil {
		return out, done.Again(), err
	}
	out.Account, err = p.Account(ctx, org)
	return out, done.Again(), err
}
