package stripepay

import (
	"context"
	"strings"

	"github.com/stripe/stripe-go/v76"
)

// metaTopUp is the metadata key under which a payment names the top-up it belongs to.
const metaTopUp = "topup"

// NewPayment charges a saved payment method at once, without the payer.
type NewPayment struct {
	TopUp       string `json:"topup"` // prefixed id, kept as metadata
	Customer    string `json:"customer"`
	Method      string `json:"method"` // pm_…
	Cents       int64  `json:"cents"`
	Currency    string `json:"currency"` // ISO 4217, upper case
	Description string `json:"description"`
}

// Status of a payment, as far as we care.
type Status string

const (
	Succeeded Status = "succeeded"
	Failed    Status = "failed"   // refused, and nothing else will be tried
	Canceled  Status = "canceled" // or the checkout page has expired
	Waiting   Status = "waiting"  // for the bank, or for the payer
)

// Payment is a PaymentIntent.
type Payment struct {
	ID       string
	TopUp    string // from its metadata; empty for a payment that is not ours
	Status   Status
	Cents    int64 // received, once succeeded; asked for, before
	Currency string
	Method   string // pm_… that paid
	Failure  string // the last refusal, for the payer
}

// CreatePayment makes a payment and charges it. A refused card is an Error with outcome Declined.
func (c *Client) CreatePayment(ctx context.Context, key string, p NewPayment) (Payment, error) {
	params := &stripe.PaymentIntentParams{
		Amount: stripe.Int64(p.Cents), Currency: stripe.String(strings.ToLower(p.Currency)), Customer: stripe.String(p.Customer),
		PaymentMethod: stripe.String(p.Method), PaymentMethodTypes: stripe.StringSlice([]string{"card"}),
		Confirm: stripe.Bool(true), OffSession: stripe.Bool(true), Description: stripe.String(p.Description),
	}
	params.AddMetadata(metaTopUp, p.TopUp)
	params.Context = ctx
	params.SetIdempotencyKey(key)
	pi, err := c.api.PaymentIntents.New(params)
	if err != nil {
		return Payment{}, failure(err)
	}
	return payment(pi), nil
}

// Payment asks for the present state of a payment.
func (c *Client) Payment(ctx context.Context, id string) (Payment, error) {
	params := &stripe.PaymentIntentParams{}
	params.Context = ctx
	pi, err := c.api.PaymentIntents.Get(id, params)
	if err != nil {
		return Payment{}, failure(err)
	}
	return payment(pi), nil
}

// FindPayment looks among the customer's payments for the one of a top-up; nil when there is none. It finds what a
// lost answer to CreatePayment has left behind.
func (c *Client) FindPayment(ctx context.Context, customer, topup string) (*Payment, error) {
	params := &stripe.PaymentIntentListParams{Customer: stripe.String(customer)}
	params.Context = ctx
	params.Limit = stripe.Int64(100)
	it := c.api.PaymentIntents.List(params)
	for it.Next() {
		if pi := it.PaymentIntent(); pi.Metadata[metaTopUp] == topup {
			p := payment(pi)
			return &p, nil
		}
	}
	return nil, failure(it.Err())
}

func payment(pi *stripe.PaymentIntent) Payment {
	p := Payment{
		ID: pi.ID, TopUp: pi.Metadata[metaTopUp], Status: Waiting, Cents: pi.Amount, Currency: strings.ToUpper(string(pi.Currency)),
	}
	if pi.PaymentMethod != nil {
		p.Method = pi.PaymentMethod.ID
	}
	if pi.LastPaymentError != nil {
		p.Failure = pi.LastPaymentError.Msg
	}
	switch pi.Status {
	case stripe.PaymentIntentStatusSucceeded:
		p.Status, p.Cents = Succeeded, pi.AmountReceived
	case stripe.PaymentIntentStatusRequiresPaymentMethod, stripe.PaymentIntentStatusRequiresAction:
		// Charged without the payer: there is nobody to choose another card or to confirm.
		p.Status = Failed
	case stripe.PaymentIntentStatusCanceled:
		p.Status = Canceled
	}
	return p
}
