package client

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// PayoutReview is an operator and a renter who are linked.
type PayoutReview struct {
	ID        id.PayoutReview `json:"id"`
	Operator  id.Org          `json:"host_org_id"`
	Renter    id.Org          `json:"renter_org_id"`
	Reasons   []string        `json:"reasons"`   // member, vat_id, legal_name, card, lost_dispute
	InReview  money.Nano      `json:"in_review"` // to be decided on
	Released  money.Nano      `json:"released"`
	Refused   money.Nano      `json:"refused"`
	Currency  string          `json:"currency"`
	Advice    string          `json:"advice,omitempty"`   // refuse, release
	Decision  string          `json:"decision,omitempty"` // why, of the last one
	DecidedAt *time.Time      `json:"decided_at,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
}

// PayoutReviews lists them, newest first; waiting: only those with something to decide on. It and those below are for
// platform operators.
func (c *Client) PayoutReviews(ctx context.Context, waiting bool, p PageOf) (Page[PayoutReview], error) {
	q := p.query()
	if waiting {
		q.Set("waiting", "true")
	}
	return get[Page[PayoutReview]](ctx, c, "/admin/payout-reviews", q)
}

// ApprovePayoutReview lets what is in review become payable as usual.
func (c *Client) ApprovePayoutReview(ctx context.Context, r id.PayoutReview, reason string) (PayoutReview, error) {
	return post[PayoutReview](ctx, c, "/admin/payout-reviews/"+r.String()+"/release", map[string]string{"reason": reason})
}

// RefusePayoutReview keeps what is in review from the operator for good; they read the reason.
func (c *Client) RefusePayoutReview(ctx context.Context, r id.PayoutReview, reason string) (PayoutReview, error) {
	return post[PayoutReview](ctx, c, "/admin/payout-reviews/"+r.String()+"/refuse", map[string]string{"reason": reason})
}
