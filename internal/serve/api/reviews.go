package api

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

func (a *API) listPayoutReviews(ctx context.Context, p account.Principal, in *struct {
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

func (a *API) approvePayoutReview(ctx context.Context, p account.Principal, in *decideReviewInput,
	once idem.Request) (payout.Review, idem.Outcome, error) {
	x, err := pathID[id.PayoutReview](in.ID, "review")
	if err != nil {
		return payout.Review{}, idem.Outcome{}, err
	}
	return a.payouts.ApproveReview(ctx, p, x, in.Body.Reason, once)
}

func (a *API) refusePayoutReview(ctx context.Context, p account.Principal, in *decideReviewInput,
	once idem.Request) (payout.Review, idem.Outcome, error) {
	x, err := pathID[id.PayoutReview](in.ID, "review")
	if err != nil {
		return payout.Review{}, idem.Outcome{}, err
	}
	return a.payouts.RefuseReview(ctx, p, x, in.Body.Reason, once)
}
