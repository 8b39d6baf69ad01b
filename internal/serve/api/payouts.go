package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// payoutsAPI answers the routes of what operators earn, and payouts with their reviews.
type payoutsAPI struct {
	payouts    *payout.Payouts
	statements *statement.Statements
	market     *market.Market
	cfg        Config
}

func (a payoutsAPI) balance(ctx context.Context, p account.Principal, _ *struct{}) (client.PayoutBalance, error) {
	return earned(ctx, a.payouts, p.Org)
}

// earned is what an operator's earnings have come to.
func earned(ctx context.Context, payouts *payout.Payouts, org id.Org) (client.PayoutBalance, error) {
	s, err := payouts.Standing(ctx, org)
	if err != nil {
		return client.PayoutBalance{}, err
	}
	where, err := payouts.Account(ctx, org)
	return client.PayoutBalance{
		Pending:  s.Pending,
		NotYet:   s.NotBooked,
		InReview: s.InReview,
		Payable:  s.Payable,
		Disputed: s.Disputed,
		Sending:  s.Sending,
		Paid:     s.Paid,
		Minimum:  payouts.Minimum(),
		NextAt:   where.NextAt,
		Holdback: int64(s.Holdback.Seconds()),
		Frozen:   append([]id.Lease{}, s.Frozen...),
		Currency: s.Currency,
	}, err
}

// ownPayout is a payout as its operator sees it.
func ownPayout(x payout.Payout) client.Payout { return x.Payout }

func (a payoutsAPI) list(ctx context.Context, p account.Principal, in *client.PageOf) (list[client.Payout], error) {
	before, err := cursor[id.Payout](*in)
	if err != nil {
		return list[client.Payout]{}, err
	}
	rows, err := a.payouts.List(ctx, p, p.Org, before, in.Limit+1)
	return cut(rows, in.Limit, ownPayout, func(x payout.Payout) string { return x.ID.String() }), err
}

func (a payoutsAPI) get(ctx context.Context, p account.Principal, in *of[id.Payout]) (client.Payout, error) {
	out, err := a.payouts.Get(ctx, p.Org, in.ID)
	return out.Payout, err
}

func (a payoutsAPI) account(ctx context.Context, p account.Principal, _ *struct{}) (payout.Account, error) {
	return a.payouts.Account(ctx, p.Org)
}

func (a payoutsAPI) setUp(ctx context.Context, p account.Principal, in *create[client.SetUpPayoutsRequest],
	once idem.Request) (out client.PayoutSetup, done idem.Outcome, err error) {
	if out.URL, done, err = a.payouts.Onboard(ctx, p, in.Body.Country, once); err != nil {
		return out, done, err
	}
	out.Account, err = a.payouts.Account(ctx, p.Org)
	return out, done, err
}

func (a payoutsAPI) listAll(ctx context.Context, p account.Principal,
	in *client.PayoutsQuery) (list[client.OperatorPayout], error) {
	before, err := cursor[id.Payout](in.PageOf)
	if err != nil {
		return list[client.OperatorPayout]{}, err
	}
	org, err := orgFilter(in.Org)
	if err != nil {
		return list[client.OperatorPayout]{}, err
	}
	var rows []payout.Payout
	if org.IsZero() {
		rows, err = a.payouts.All(ctx, p, before, in.Limit+1)
	} else {
		rows, err = a.payouts.List(ctx, p, org, before, in.Limit+1)
	}
	return cut(rows, in.Limit, same[payout.Payout], func(x payout.Payout) string { return x.ID.String() }), err
}

func (a payoutsAPI) payNow(ctx context.Context, p account.Principal, in *create[client.PayNowRequest],
	once idem.Request) (client.OperatorPayout, idem.Outcome, error) {
	org, err := id.Parse[id.Org](in.Body.OrgID)
	if err != nil {
		return client.OperatorPayout{}, idem.Outcome{}, fault.InvalidField("org_id", "is not the id of an organisation")
	}
	return a.payouts.PayNow(ctx, p, org, in.Body.Reason, once)
}

func (a payoutsAPI) reverse(ctx context.Context, p account.Principal, in *act[id.Payout, client.ReversePayoutRequest],
	once idem.Request) (client.OperatorPayout, idem.Outcome, error) {
	amount, err := positiveOrNone("amount", in.Body.Amount)
	if err != nil {
		return client.OperatorPayout{}, idem.Outcome{}, err
	}
	return a.payouts.Reverse(ctx, p, payout.ReversalRequest{
		Payout: in.ID,
		Amount: amount,
		Reason: in.Body.Reason,
	}, once)
}

func (a payoutsAPI) changeOperator(ctx context.Context, p account.Principal,
	in *change[id.Org, client.ChangeOperatorRequest]) (client.Operator, error) {
	x, _, err := a.payouts.ChangeOperator(ctx, p, a.market, in.ID, payout.OperatorChange{
		FeePPM:  in.Body.FeePPM,
		Stopped: in.Body.PayoutsStopped,
		Reason:  in.Body.Reason,
	}, idem.Request{})
	return client.Operator{OrgID: x.Org, FeePPM: x.FeePPM, Account: x.Account}, err
}

func (a payoutsAPI) year(w http.ResponseWriter, r *http.Request, p account.Principal, in *client.EarningsYear) error {
	y, err := a.payouts.Year(r.Context(), p.Org, in.Year)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="earnings-`+strconv.Itoa(y.Year)+`.csv"`)
	return y.CSV(w)
}

func (a payoutsAPI) earningsStatement(ctx context.Context, p account.Principal,
	in *client.EarningsQuery) (client.EarningsStatement, error) {
	s, err := a.operatorStatement(ctx, p, in)
	return client.EarningsStatement(s), err
}

func (a payoutsAPI) operatorStatement(ctx context.Context, p account.Principal,
	in *client.EarningsQuery) (statement.OperatorPeriod, error) {
	wait, err := a.payouts.HoldbackOf(ctx, p.Org)
	if err != nil {
		return statement.OperatorPeriod{}, err
	}
	r := statement.OperatorRequest{
		Org:      p.Org,
		Currency: a.cfg.Currency,
		From:     in.From,
		To:       in.To,
		By:       in.By,
		Holdback: wait,
	}
	if in.Host != "" {
		h, err := id.Parse[id.Host](in.Host)
		if err != nil {
			return statement.OperatorPeriod{}, fault.InvalidField("query.host", "is not the id of a host")
		}
		r.Host = h
	}
	return a.statements.OperatorStatement(ctx, r)
}

func (a payoutsAPI) earningsStatementCSV(w http.ResponseWriter, r *http.Request, p account.Principal,
	in *client.EarningsDays) error {
	s, err := a.operatorStatement(r.Context(), p, &client.EarningsQuery{EarningsDays: *in})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="earnings-`+s.From+"-"+s.To+`.csv"`)
	return s.CSV(w)
}
