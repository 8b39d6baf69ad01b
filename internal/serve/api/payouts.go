package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
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

func (a payoutsAPI) list(ctx context.Context, p account.Principal, in *struct{ Page }) (list[client.Payout], error) {
	before, err := cursor[id.Payout](in.Page)
	if err != nil {
		return list[client.Payout]{}, err
	}
	rows, err := a.payouts.List(ctx, p, p.Org, before, in.Limit+1)
	return cut(rows, in.Limit, ownPayout, func(x payout.Payout) string { return x.ID.String() }), err
}

func (a payoutsAPI) get(ctx context.Context, p account.Principal, in *idInput) (client.Payout, error) {
	x, err := pathID[id.Payout](in.ID, "payout")
	if err != nil {
		return client.Payout{}, err
	}
	out, err := a.payouts.Get(ctx, p.Org, x)
	return out.Payout, err
}

func (a payoutsAPI) account(ctx context.Context, p account.Principal, _ *struct{}) (payout.Account, error) {
	return a.payouts.Account(ctx, p.Org)
}

type setUpPayoutsInput struct {
	Keyed
	Body struct {
		Country string `json:"country,omitempty" doc:"where you are paid, two capital letters; only needed the first time, and final" example:"DE"`
	}
}

func (a payoutsAPI) setUp(ctx context.Context, p account.Principal, in *setUpPayoutsInput,
	once idem.Request) (out client.PayoutSetup, done idem.Outcome, err error) {
	if out.URL, done, err = a.payouts.Onboard(ctx, p, in.Body.Country, once); err != nil {
		return out, done, err
	}
	out.Account, err = a.payouts.Account(ctx, p.Org)
	return out, done, err
}

func (a payoutsAPI) listAll(ctx context.Context, p account.Principal, in *struct {
	Page
	Org string `query:"org_id" maxLength:"100" doc:"to this operator alone"`
}) (list[client.OperatorPayout], error) {
	before, err := cursor[id.Payout](in.Page)
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

type payNowInput struct {
	Keyed
	Body struct {
		OrgID  string `json:"org_id" doc:"of the operator"`
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
	}
}

func (a payoutsAPI) payNow(ctx context.Context, p account.Principal, in *payNowInput,
	once idem.Request) (client.OperatorPayout, idem.Outcome, error) {
	org, err := id.Parse[id.Org](in.Body.OrgID)
	if err != nil {
		return client.OperatorPayout{}, idem.Outcome{}, fault.InvalidField("org_id", "is not the id of an organisation")
	}
	return a.payouts.PayNow(ctx, p, org, in.Body.Reason, once)
}

type reversePayoutInput struct {
	Keyed
	ID   string `path:"id"`
	Body struct {
		Amount string `json:"amount,omitempty" doc:"a decimal, in whole cents; left out: all that is left of it" example:"25.00"`
		Reason string `json:"reason" doc:"the operator reads it"`
	}
}

func (a payoutsAPI) reverse(ctx context.Context, p account.Principal, in *reversePayoutInput,
	once idem.Request) (client.OperatorPayout, idem.Outcome, error) {
	of, err := pathID[id.Payout](in.ID, "payout")
	if err != nil {
		return client.OperatorPayout{}, idem.Outcome{}, err
	}
	var amount money.Nano
	if in.Body.Amount != "" {
		if amount, err = money.ParseNano(in.Body.Amount); err != nil || amount <= 0 {
			return client.OperatorPayout{}, idem.Outcome{}, fault.InvalidField("amount", "is a decimal above zero")
		}
	}
	return a.payouts.Reverse(ctx, p, payout.ReversalRequest{
		Payout: of,
		Amount: amount,
		Reason: in.Body.Reason,
	}, once)
}

type changeOperatorInput struct {
	ID   string `path:"id"`
	Body struct {
		PayoutsStopped *bool  `json:"payouts_stopped,omitempty"`
		FeePPM         *int   `json:"fee_ppm,omitempty" minimum:"0" maximum:"1000000" doc:"the platform's part of what their hosts earn from new leases, in millionths"`
		Reason         string `json:"reason" doc:"the operator reads it"`
	}
}

func (a payoutsAPI) changeOperator(ctx context.Context, p account.Principal,
	in *changeOperatorInput) (client.Operator, error) {
	org, err := pathID[id.Org](in.ID, "organisation")
	if err != nil {
		return client.Operator{}, err
	}
	x, _, err := a.payouts.ChangeOperator(ctx, p, a.market, org, payout.OperatorChange{
		FeePPM:  in.Body.FeePPM,
		Stopped: in.Body.PayoutsStopped,
		Reason:  in.Body.Reason,
	}, idem.Request{})
	return client.Operator{OrgID: x.Org, FeePPM: x.FeePPM, Account: x.Account}, err
}

func yearParams() []*huma.Param {
	return []*huma.Param{{
		Name:        "year",
		In:          "query",
		Description: "calendar year in your organisation's zone, such as 2026",
		Required:    true,
		Schema:      &huma.Schema{Type: huma.TypeString},
	}}
}

func (a payoutsAPI) year(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	y, err := a.payouts.Year(r.Context(), p.Org, r.URL.Query().Get("year"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="earnings-`+strconv.Itoa(y.Year)+`.csv"`)
	return y.CSV(w)
}

type earningsInput struct {
	From string `query:"from" doc:"first day, YYYY-MM-DD in your organisation's zone; left out: the first of this month"`
	To   string `query:"to" doc:"last day; left out: today"`
	By   string `query:"by" doc:"host, day or lease; left out: host"`
	Host string `query:"host" doc:"one of your hosts; left out: all"`
}

func (a payoutsAPI) earningsStatement(ctx context.Context, p account.Principal,
	in *earningsInput) (client.EarningsStatement, error) {
	s, err := a.operatorStatement(ctx, p, in)
	return client.EarningsStatement(s), err
}

func (a payoutsAPI) operatorStatement(ctx context.Context, p account.Principal,
	in *earningsInput) (statement.OperatorPeriod, error) {
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

func earningsParams() []*huma.Param {
	text := &huma.Schema{Type: huma.TypeString}
	return append(statementParams(), &huma.Param{
		Name:        "host",
		In:          "query",
		Description: "one of your hosts; left out: all",
		Schema:      text,
	})
}

func (a payoutsAPI) earningsStatementCSV(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	s, err := a.operatorStatement(r.Context(), p, &earningsInput{
		From: r.URL.Query().Get("from"),
		To:   r.URL.Query().Get("to"),
		Host: r.URL.Query().Get("host"),
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="earnings-`+s.From+"-"+s.To+`.csv"`)
	return s.CSV(w)
}
