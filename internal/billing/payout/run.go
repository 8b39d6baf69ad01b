package payout

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// runRows bounds the overview of a run: who failed comes first, then who gets most.
const runRows = 200

// Next is what an operator's next payout would be, were it made now.
type Next struct {
	Org      id.Org     `json:"org_id"`
	OrgName  string     `json:"org_name"`
	Payable  money.Nano `json:"payable"`
	Amount   money.Nano `json:"amount"` // of it, what would be sent; 0 when nothing can be
	Why      string     `json:"why,omitempty"`
	NextAt   *time.Time `json:"next_at"`  // null: no account
	Failures int        `json:"failures"` // in a row
	Failure  string     `json:"failure,omitempty"`
	Account  Account    `json:"account"`
}

// Upcoming is what the next payouts would be: who failed first, then who gets most, at most 200. Only a platform
// operator sees it; fault: Forbidden.
func (p *Payouts) Upcoming(ctx context.Context, who account.Principal) ([]Next, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	rows, err := p.d.Q.PayoutRun(ctx, p.cfg.Currency, runRows)
	if err != nil {
		return nil, fmt.Errorf("payout: run: %w", err)
	}
	out := make([]Next, len(rows))
	for i, r := range rows {
		n := Next{Org: r.OrgID, OrgName: r.OrgName, Payable: money.Nano(r.Payable), Failures: int(r.Failures)}
		if n.Account, err = p.Account(ctx, r.OrgID); err != nil {
			return nil, err
		}
		if n.NextAt = n.Account.NextAt; r.Failures > 0 {
			n.Failure = r.Failure
		}
		if n.Amount, n.Why, err = p.preview(ctx, r.OrgID, r.Sending); err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}

// Next is what one operator's next payout would be. Only a platform operator sees it; fault: Forbidden.
func (p *Payouts) Next(ctx context.Context, who account.Principal, org id.Org) (n Next, err error) {
	if err := account.RequireStaff(who); err != nil {
		return n, err
	}
	n.Org = org
	if n.Account, err = p.Account(ctx, org); err != nil {
		return n, err
	}
	n.NextAt = n.Account.NextAt
	onTheWay, err := p.d.Q.PayoutPending(ctx, org, p.cfg.Currency)
	if err != nil {
		return n, fmt.Errorf("payout: next of %s: %w", org, err)
	}
	if n.Payable, err = ledger.Balance(ctx, p.d.Q, ledger.HostPayable(org, p.cfg.Currency)); err != nil {
		return n, err
	}
	n.Amount, n.Why, err = p.preview(ctx, org, onTheWay)
	return n, err
}

// preview is what decide would pay now, or why nothing. It locks nothing: what is paid is decided anew.
func (p *Payouts) preview(ctx context.Context, org id.Org, onTheWay int64) (money.Nano, string, error) {
	a, err := p.d.Q.PayoutAccount(ctx, org)
	if db.NoRows(err) {
		return 0, "there is no payout account", nil
	}
	if err != nil {
		return 0, "", fmt.Errorf("payout: account of %s: %w", org, err)
	}
	pending, err := ledger.Balance(ctx, p.d.Q, ledger.HostPending(org, p.cfg.Currency))
	if err != nil {
		return 0, "", err
	}
	payable, err := ledger.Balance(ctx, p.d.Q, ledger.HostPayable(org, p.cfg.Currency))
	if err != nil {
		return 0, "", err
	}
	disputed, err := disputedOutsideReview(ctx, p.d.Q, org, p.cfg.Currency)
	if err != nil {
		return 0, "", err
	}
	held, err := heldForReview(ctx, p.d.Q, org, p.cfg.Currency)
	if err != nil {
		return 0, "", err
	}
	amount := available(pending-held, payable, disputed)
	amount -= amount % money.Cent
	sending, err := payment.SendingState(ctx, p.d.Q)
	if err != nil {
		return 0, "", err
	}
	why := obstacle(a, onTheWay, sending)
	if why == "" && amount < p.cfg.Minimum {
		why = p.tooLittle(amount)
	}
	if why != "" {
		return 0, why, nil
	}
	return amount, "", nil
}

// PayAll pays everybody who can be paid, outside the schedule, each in a transaction of its own, with a reason for the
// audit log. Only an admin may. What it paid before an error stays paid; repeated, it pays those who are left. Faults:
// Forbidden, Invalid (the reason).
func (p *Payouts) PayAll(ctx context.Context, who account.Principal, reason string,
	once idem.Request) ([]Payout, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, idem.Outcome{}, err
	}
	return idem.OnceInSteps(ctx, p.d, once, func(ctx context.Context) ([]Payout, error) {
		return p.payAll(ctx, who, reason)
	})
}

func (p *Payouts) payAll(ctx context.Context, who account.Principal, reason string) ([]Payout, error) {
	if _, err := checkReason(reason); err != nil {
		return nil, err
	}
	all, err := p.Upcoming(ctx, who)
	if err != nil {
		return nil, err
	}
	made := []Payout{}
	for _, n := range all {
		if n.Why != "" {
			continue
		}
		x, _, err := p.PayNow(ctx, who, n.Org, reason, idem.Request{})
		switch {
		case fault.Is(err, fault.Conflict), fault.Is(err, fault.NotFound): // another replica was here
		case err != nil:
			return made, err
		default:
			made = append(made, x)
		}
	}
	return made, nil
}
