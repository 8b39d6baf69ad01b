package api

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
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

func (a *API) approvePayoutReview(ctx context.Context, tx *db.Tx, p account.Principal,
	in *decideReviewInput) (payout.Review, error) {
	x, err := pathID[id.PayoutReview](in.ID, "review")
	if err != nil {
		return payout.Review{}, err
	}
	return a.payouts.ApproveReview(ctx, tx, p, x, in.Body.Reason)
}

func (a *API) refusePayoutReview(ctx context.Context, tx *db.Tx, p account.Principal,
	in *decideReviewInput) (payout.Review, error) {
	x, err := pathID[id.PayoutReview](in.ID, "review")
	if err != nil {
		return payout.Review{}, err
	}
	return a.payouts.Refuse(ctx, tx, p, x, in.Body.Reason)
}
