package stripe

import (
	"context"
	"strings"

	"github.com/stripe/stripe-go/v76"
)

const (
	metaRefund = "refund"
)

// NewRefund gives back a part of a payment, or all of it.
type NewRefund struct {
	Refund  string `json:"refund"`  // prefixed id, kept as metadata
	Payment string `json:"payment"` // pi_…
	Cents   int64  `json:"cents"`
	// Meta is kept as further metadata, as NewPayment.Meta.
	Meta map[string]string `json:"meta,omitempty"`
}

// Refund is money on its way back.
type Refund struct {
	ID       string // re_…
	Refund   string // from its metadata; empty for one that is not ours
	Payment  string // pi_…
	Status   Status // Succeeded, Failed, Canceled or Waiting
	Cents    int64
	Currency string
	Failure  string // Stripe's reason
	// Booked: it has changed Stripe's balance. One that fails while it is pending may never have: there was no money for
	// it, or it waited for the payer.
	Booked bool
	Meta   map[string]string // all of its metadata
}

// CreateRefund gives money back. One that Stripe refuses (more than is left, disputed) is an Error with outcome
// Rejected.
func (c *Client) CreateRefund(ctx context.Context, key string, p NewRefund) (Refund, error) {
	params := &stripe.RefundParams{
		PaymentIntent: stripe.String(p.Payment),
		Amount:        stripe.Int64(p.Cents),
		Reason:        stripe.String(string(stripe.RefundReasonRequestedByCustomer)),
	}
	for k, v := range p.Meta {
		params.AddMetadata(k, v)
	}
	params.AddMetadata(metaRefund, p.Refund)
	params.Context = ctx
	params.SetIdempotencyKey(key)
	r, err := c.api.Refunds.New(params)
	if err != nil {
		return Refund{}, failure(err)
	}
	return refund(r), nil
}

// Refund asks for the present state of a refund.
func (c *Client) Refund(ctx context.Context, id string) (Refund, error) {
	params := &stripe.RefundParams{}
	params.Context = ctx
	r, err := c.api.Refunds.Get(id, params)
	if err != nil {
		return Refund{}, failure(err)
	}
	return refund(r), nil
}

// FindRefund looks among a payment's refunds for one of ours; nil when there is none. It finds what a lost answer to
// CreateRefund has left behind.
func (c *Client) FindRefund(ctx context.Context, payment, ours string) (*Refund, error) {
	params := &stripe.RefundListParams{PaymentIntent: stripe.String(payment)}
	params.Context = ctx
	params.Limit = stripe.Int64(100)
	it := c.api.Refunds.List(params)
	for it.Next() {
		if r := it.Refund(); r.Metadata[metaRefund] == ours {
			out := refund(r)
			return &out, nil
		}
	}
	return nil, failure(it.Err())
}

func refund(r *stripe.Refund) Refund {
	out := Refund{
		ID:       r.ID,
		Refund:   r.Metadata[metaRefund],
		Status:   Waiting,
		Cents:    r.Amount,
		Currency: strings.ToUpper(string(r.Currency)),
		Failure:  string(r.FailureReason),
	}
	out.Booked, out.Meta = r.BalanceTransaction != nil, r.Metadata
	if r.PaymentIntent != nil {
		out.Payment = r.PaymentIntent.ID
	}
	switch r.Status {
	case stripe.RefundStatusSucceeded:
		out.Status = Succeeded
	case stripe.RefundStatusFailed:
		out.Status = Failed
	case stripe.RefundStatusCanceled:
		out.Status = Canceled
	}
	return out
}
