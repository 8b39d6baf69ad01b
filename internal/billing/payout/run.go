package payout

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/claim"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// runRows bounds the overview of a run: who failed comes first, then who gets most.
const runRows = 200

// Next is what an operator's next payout would be if it were made now.
type Next = client.NextPayout

// Upcoming lists what the next payouts would be: operators whose payouts failed first, then by what is payable, at most
// 200. Only an admin may. Fault: Forbidden.
func (p *Payouts) Upcoming(ctx context.Context, who account.Principal) ([]Next, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	rows, err := p.d.Q.PayoutRun(ctx, p.cfg.Currency, runRows)
	if err != nil {
		return nil, fmt.Errorf("list operators to pay: %w", err)
	}
	orgs := make([]id.Org, len(rows))
	for i, r := range rows {
		orgs[i] = r.OrgID
	}
	out, err := p.preview(ctx, orgs...)
	if err != nil {
		return nil, err
	}
	for i, r := range rows {
		if out[i].OrgName, out[i].Failures = r.OrgName, int(r.Failures); r.Failures > 0 {
			out[i].Failure = r.Failure
		}
	}
	return out, nil
}

// Next returns what one operator's next payout would be, without the org's name and failures. Only an admin may. Fault:
// Forbidden.
func (p *Payouts) Next(ctx context.Context, who account.Principal, org id.Org) (Next, error) {
	if err := account.RequireStaff(who); err != nil {
		return Next{}, err
	}
	all, err := p.preview(ctx, org)
	if err != nil {
		return Next{}, err
	}
	return all[0], nil
}

// preview returns for each operator what decide would pay now, or why nothing. It locks nothing: a payment decides
// again. It takes as many statements for two hundred operators as for one.
func (p *Payouts) preview(ctx context.Context, orgs ...id.Org) ([]Next, error) {
	sending, err := outbox.SendingState(ctx, p.d.Q)
	if err != nil {
		return nil, err
	}
	ids := rawOrgs(orgs...)
	accounts, err := p.d.Q.PayoutAccounts(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read payout accounts: %w", err)
	}
	funds, err := p.d.Q.PayoutFunds(ctx, p.cfg.Currency, ids)
	if err != nil {
		return nil, fmt.Errorf("read what operators earned: %w", err)
	}
	disputes, err := claim.Disputes(ctx, p.d.Q, p.cfg.Currency, time.Time{}, orgs...)
	if err != nil {
		return nil, err
	}
	account, earned := map[id.Org]*dbq.PayoutAccount{}, map[id.Org]dbq.PayoutFundsRow{}
	for i, a := range accounts {
		account[a.OrgID] = &accounts[i]
	}
	for _, f := range funds {
		earned[f.OrgID] = f
	}
	out := make([]Next, len(orgs))
	for i, org := range orgs {
		f := earned[org]
		out[i] = Next{Org: org, Payable: money.Nano(f.Payable), Account: p.viewAccount(account[org])}
		out[i].NextAt = out[i].Account.NextAt
		if account[org] == nil {
			out[i].Why = "there is no payout account"
			continue
		}
		c := claim.Claims{InReview: money.Nano(f.InReview), Owed: money.Nano(f.Owed)}
		_, c.Disputed = claim.Disputed(disputes[org], false)
		amount := wholeCents(c.Payable(money.Nano(f.Pending), money.Nano(f.Payable)))
		if out[i].Why = obstacle(*account[org], f.OnTheWay, sending); out[i].Why == "" {
			out[i].Why = p.tooLittle(amount, c.Owed)
		}
		if out[i].Why == "" {
			out[i].Amount = amount
		}
	}
	return out, nil
}

// rawOrgs returns ids for a uuid[] parameter.
func rawOrgs(orgs ...id.Org) []pgtype.UUID {
	out := make([]pgtype.UUID, len(orgs))
	for i, o := range orgs {
		out[i] = pgtype.UUID{Bytes: o.UUID(), Valid: true}
	}
	return out
}

// PayAll pays every operator who can be paid, outside the schedule, each in a separate transaction, with a reason for
// the audit log. Only an admin may. What it paid before an error stays paid; repeated, it pays the rest. Faults:
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
