package api

import (
	"context"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// adminAPI answers the routes of organisations, as admins of the platform see them.
type adminAPI struct {
	statements *statement.Statements
	payments   *payment.Payments
	payouts    *payout.Payouts
	market     *market.Market
}

func (a adminAPI) attention(ctx context.Context, p account.Principal, _ *struct{}) (statement.Attention, error) {
	return a.statements.Wants(ctx, p)
}

func (a adminAPI) platformTotals(ctx context.Context, p account.Principal, _ *struct{}) (statement.PlatformTotals, error) {
	return a.statements.PlatformTotals(ctx, p, time.Now())
}

// SearchOrgs is the query of lists of organisations. (Exported because huma reads only exported fields.)
type SearchOrgs struct {
	Page
	Q string `query:"q" maxLength:"200" doc:"an organisation's id, or a part of its name, its legal name or a member's e-mail address"`
}

func (a adminAPI) listOrgs(ctx context.Context, p account.Principal, in *SearchOrgs) (list[statement.FoundOrg], error) {
	return a.orgs(ctx, p, *in, false)
}

func (a adminAPI) listOperators(ctx context.Context, p account.Principal,
	in *SearchOrgs) (list[statement.FoundOrg], error) {
	return a.orgs(ctx, p, *in, true)
}

func (a adminAPI) orgs(ctx context.Context, p account.Principal, in SearchOrgs,
	operators bool) (list[statement.FoundOrg], error) {
	before, err := cursor[id.Org](in.Page)
	if err != nil {
		return list[statement.FoundOrg]{}, err
	}
	rows, err := a.statements.Orgs(ctx, p, statement.OrgSearch{
		Words:     in.Q,
		Operators: operators,
	}, before, in.Limit+1)
	return cut(rows, in.Limit, same[statement.FoundOrg], func(o statement.FoundOrg) string { return o.ID.String() }), err
}

func (a adminAPI) getOrg(ctx context.Context, p account.Principal, in *idInput) (client.OrgDetail, error) {
	org, err := pathID[id.Org](in.ID, "organisation")
	if err != nil {
		return client.OrgDetail{}, err
	}
	found, err := a.statements.OneOrg(ctx, p, org)
	if err != nil {
		return client.OrgDetail{}, err
	}
	out := client.OrgDetail{
		FoundOrg:    found.FoundOrg,
		Members:     found.Members,
		HostList:    found.HostList,
		ClusterList: found.ClusterList,
		Disputes:    found.Disputes,
	}
	if found.Legal.Known() {
		v := viewLegal(found.Legal)
		out.Legal = &v
	}
	if out.FeePPM, err = a.market.Fee(ctx, org); err != nil {
		return out, err
	}
	if out.Earnings, err = earned(ctx, a.payouts, org); err != nil {
		return out, err
	}
	out.Account, err = a.payouts.Account(ctx, org)
	return out, err
}

func (a payoutsAPI) upcoming(ctx context.Context, p account.Principal, _ *struct{}) (list[payout.Next], error) {
	all, err := a.payouts.Upcoming(ctx, p)
	return cut(all, len(all), same[payout.Next], func(payout.Next) string { return "" }), err
}

type runPayoutsInput struct {
	Keyed
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
	}
}

func (a payoutsAPI) payAll(ctx context.Context, p account.Principal, in *runPayoutsInput,
	once idem.Request) (list[client.OperatorPayout], idem.Outcome, error) {
	view := func(made []payout.Payout) list[client.OperatorPayout] {
		return cut(made, len(made), same[payout.Payout], func(payout.Payout) string { return "" })
	}
	made, done, err := a.payouts.PayAll(ctx, p, in.Body.Reason, idem.As(once, view))
	return view(made), done, err
}

func (a adminAPI) redemptions(ctx context.Context, p account.Principal, in *struct {
	Page
	Code string `query:"code" maxLength:"100" doc:"of this code alone"`
	Org  string `query:"org_id" maxLength:"100" doc:"by this organisation alone"`
}) (list[payment.Redemption], error) {
	org, err := orgFilter(in.Org)
	if err != nil {
		return list[payment.Redemption]{}, err
	}
	rows, err := a.payments.Redemptions(ctx, p, in.Code, org, in.After, in.Limit+1)
	return cut(rows, in.Limit, same[payment.Redemption], payment.RedemptionCursor), err
}

// orgFilter reads the organisation that a list is bounded to; "" is all.
func orgFilter(s string) (id.Org, error) {
	var org id.Org
	if err := org.UnmarshalText([]byte(s)); err != nil {
		return org, fault.InvalidField("query.org_id", "is not the id of an organisation")
	}
	return org, nil
}

func (a adminAPI) standing(ctx context.Context, p account.Principal, _ *struct{}) (payment.Standing, error) {
	return a.payments.Standing(ctx, p.Org)
}

func (a adminAPI) standings(ctx context.Context, p account.Principal, _ *struct{}) (client.OrgStandings, error) {
	list, err := a.payments.Standings(ctx, p)
	return client.OrgStandings{Items: list}, err
}

type forgiveInput struct {
	Keyed
	ID   string `path:"id"`
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
	}
}

func viewForgiven(org id.Org) client.DisputesForgiven { return client.DisputesForgiven{ID: org} }

func (a adminAPI) forgiveDisputes(ctx context.Context, p account.Principal, in *forgiveInput,
	once idem.Request) (client.DisputesForgiven, idem.Outcome, error) {
	org, err := pathID[id.Org](in.ID, "organisation")
	if err != nil {
		return client.DisputesForgiven{}, idem.Outcome{}, err
	}
	_, done, err := a.payments.Forgive(ctx, p, org, in.Body.Reason, idem.As(once, viewForgiven))
	return viewForgiven(org), done, err
}

type allowRefundInput struct {
	Keyed
	ID   string `path:"id"`
	Body struct {
		Amount string `json:"amount" doc:"a decimal, in whole cents, without tax" example:"25.00"`
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
	}
}

func viewRefundAllowed(org id.Org) client.RefundAllowed { return client.RefundAllowed{ID: org} }

func (a adminAPI) allowRefund(ctx context.Context, p account.Principal, in *allowRefundInput,
	once idem.Request) (client.RefundAllowed, idem.Outcome, error) {
	org, err := pathID[id.Org](in.ID, "organisation")
	if err != nil {
		return client.RefundAllowed{}, idem.Outcome{}, err
	}
	amount, err := money.ParseNano(in.Body.Amount)
	if err != nil {
		return client.RefundAllowed{}, idem.Outcome{}, fault.InvalidField("amount", "%s", err)
	}
	_, done, err := a.payments.AllowRefund(ctx, p, org, amount, in.Body.Reason, idem.As(once, viewRefundAllowed))
	return viewRefundAllowed(org), done, err
}

func (a payoutsAPI) listReviews(ctx context.Context, p account.Principal, in *struct {
	Page
	Waiting bool   `query:"waiting" doc:"only those with something to decide on"`
	Org     string `query:"org_id" maxLength:"100" doc:"of this operator or renter alone"`
}) (list[payout.Review], error) {
	org, err := orgFilter(in.Org)
	if err != nil {
		return list[payout.Review]{}, err
	}
	before, err := cursor[id.PayoutReview](in.Page)
	if err != nil {
		return list[payout.Review]{}, err
	}
	rows, err := a.payouts.ReviewsOf(ctx, p, payout.ReviewFilter{Org: org, Waiting: in.Waiting}, before, in.Limit+1)
	return cut(rows, in.Limit, same[payout.Review], func(x payout.Review) string { return x.ID.String() }), err
}

type decideReviewInput struct {
	Keyed
	ID   string `path:"id"`
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"kept in the audit trail; of a refusal, the operator reads it"`
	}
}

func (a payoutsAPI) approveReview(ctx context.Context, p account.Principal, in *decideReviewInput,
	once idem.Request) (payout.Review, idem.Outcome, error) {
	x, err := pathID[id.PayoutReview](in.ID, "review")
	if err != nil {
		return payout.Review{}, idem.Outcome{}, err
	}
	return a.payouts.ApproveReview(ctx, p, x, in.Body.Reason, once)
}

func (a payoutsAPI) refuseReview(ctx context.Context, p account.Principal, in *decideReviewInput,
	once idem.Request) (payout.Review, idem.Outcome, error) {
	x, err := pathID[id.PayoutReview](in.ID, "review")
	if err != nil {
		return payout.Review{}, idem.Outcome{}, err
	}
	return a.payouts.RefuseReview(ctx, p, x, in.Body.Reason, once)
}
