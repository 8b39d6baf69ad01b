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

func (a adminAPI) platformTotals(ctx context.Context, p account.Principal, _ *struct{}) (statement.PlatformTotals,
	error) {
	return a.statements.PlatformTotals(ctx, p, time.Now())
}

func (a adminAPI) listOrgs(ctx context.Context, p account.Principal,
	in *client.OrgsQuery) (list[statement.FoundOrg], error) {
	return a.orgs(ctx, p, *in, false)
}

func (a adminAPI) listOperators(ctx context.Context, p account.Principal,
	in *client.OrgsQuery) (list[statement.FoundOrg], error) {
	return a.orgs(ctx, p, *in, true)
}

func (a adminAPI) orgs(ctx context.Context, p account.Principal, in client.OrgsQuery,
	operators bool) (list[statement.FoundOrg], error) {
	before, err := cursor[id.Org](in.PageOf)
	if err != nil {
		return list[statement.FoundOrg]{}, err
	}
	rows, err := a.statements.Orgs(ctx, p, statement.OrgSearch{
		Words:     in.Q,
		Operators: operators,
	}, before, in.Limit+1)
	return cut(rows, in.Limit, same[statement.FoundOrg], func(o statement.FoundOrg) string { return o.ID.String() }), err
}

func (a adminAPI) getOrg(ctx context.Context, p account.Principal, in *of[id.Org]) (client.OrgDetail, error) {
	found, err := a.statements.OneOrg(ctx, p, in.ID)
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
	if out.FeePPM, err = a.market.Fee(ctx, in.ID); err != nil {
		return out, err
	}
	if out.Earnings, err = earned(ctx, a.payouts, in.ID); err != nil {
		return out, err
	}
	out.Account, err = a.payouts.Account(ctx, in.ID)
	return out, err
}

func (a payoutsAPI) upcoming(ctx context.Context, p account.Principal, _ *struct{}) (list[payout.Next], error) {
	all, err := a.payouts.Upcoming(ctx, p)
	return cut(all, len(all), same[payout.Next], func(payout.Next) string { return "" }), err
}

func (a payoutsAPI) payAll(ctx context.Context, p account.Principal, in *create[client.RunPayoutsRequest],
	once idem.Request) (list[client.OperatorPayout], idem.Outcome, error) {
	view := func(made []payout.Payout) list[client.OperatorPayout] {
		return cut(made, len(made), same[payout.Payout], func(payout.Payout) string { return "" })
	}
	made, done, err := a.payouts.PayAll(ctx, p, in.Body.Reason, idem.As(once, view))
	return view(made), done, err
}

func (a adminAPI) redemptions(ctx context.Context, p account.Principal,
	in *client.RedemptionsQuery) (list[payment.Redemption], error) {
	org, err := orgFilter(in.Org)
	if err != nil {
		return list[payment.Redemption]{}, err
	}
	rows, err := a.payments.PromoCodes.Redemptions(ctx, p, in.Code, org, in.After, in.Limit+1)
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
	return a.payments.Standings.Of(ctx, p.Org)
}

func (a adminAPI) standings(ctx context.Context, p account.Principal, _ *struct{}) (client.OrgStandings, error) {
	list, err := a.payments.Standings.List(ctx, p)
	return client.OrgStandings{Items: list}, err
}

func viewForgiven(org id.Org) client.DisputesForgiven { return client.DisputesForgiven{ID: org} }

func (a adminAPI) forgiveDisputes(ctx context.Context, p account.Principal,
	in *act[id.Org, client.ForgiveDisputesRequest],
	once idem.Request) (client.DisputesForgiven, idem.Outcome, error) {
	_, done, err := a.payments.Standings.Forgive(ctx, p, in.ID, in.Body.Reason, idem.As(once, viewForgiven))
	return viewForgiven(in.ID), done, err
}

func viewRefundAllowed(org id.Org) client.RefundAllowed { return client.RefundAllowed{ID: org} }

func (a adminAPI) allowRefund(ctx context.Context, p account.Principal, in *act[id.Org, client.AllowRefundRequest],
	once idem.Request) (client.RefundAllowed, idem.Outcome, error) {
	amount, err := amount("amount", in.Body.Amount)
	if err != nil {
		return client.RefundAllowed{}, idem.Outcome{}, err
	}
	_, done, err := a.payments.Refunds.Allow(ctx, p, in.ID, amount, in.Body.Reason, idem.As(once, viewRefundAllowed))
	return viewRefundAllowed(in.ID), done, err
}

func (a payoutsAPI) listReviews(ctx context.Context, p account.Principal,
	in *client.PayoutReviewsQuery) (list[payout.Review], error) {
	org, err := orgFilter(in.Org)
	if err != nil {
		return list[payout.Review]{}, err
	}
	before, err := cursor[id.PayoutReview](in.PageOf)
	if err != nil {
		return list[payout.Review]{}, err
	}
	rows, err := a.payouts.ReviewsOf(ctx, p, payout.ReviewFilter{Org: org, Waiting: in.Waiting}, before, in.Limit+1)
	return cut(rows, in.Limit, same[payout.Review], func(x payout.Review) string { return x.ID.String() }), err
}

func (a payoutsAPI) approveReview(ctx context.Context, p account.Principal,
	in *act[id.PayoutReview, client.ReviewDecision],
	once idem.Request) (payout.Review, idem.Outcome, error) {
	return a.payouts.ApproveReview(ctx, p, in.ID, in.Body.Reason, once)
}

func (a payoutsAPI) refuseReview(ctx context.Context, p account.Principal,
	in *act[id.PayoutReview, client.ReviewDecision],
	once idem.Request) (payout.Review, idem.Outcome, error) {
	return a.payouts.RefuseReview(ctx, p, in.ID, in.Body.Reason, once)
}
