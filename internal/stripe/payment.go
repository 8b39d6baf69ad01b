package stripe

import (
	"context"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v76"

	"github.com/musterhq/muster/internal/text"
)

// metaTopUp is the metadata key under which a payment names the top-up it belongs to.
const metaTopUp = "topup"

// NewPayment charges a saved payment method at once. It is kept as JSON and sent again under its key: a field that is
// added later is left out of what was written before.
type NewPayment struct {
	TopUp       string `json:"topup"` // prefixed id, kept as metadata
	Customer    string `json:"customer"`
	Method      string `json:"method"` // pm_…
	Cents       int64  `json:"cents"`
	Currency    string `json:"currency"` // ISO 4217, upper case
	Description string `json:"description"`
	// If ReturnURL is set, the payer is present: their bank may ask them on a page (Payment.ActionURL) that sends them
	// back here. Empty: a bank that wants to ask declines.
	ReturnURL string `json:"return_url,omitempty"`
	Receipt   string `json:"receipt,omitempty"` // e-mail address to which Stripe sends the receipt
	// Meta is kept as further metadata: what is needed to book the payment again if the database should lose it.
	Meta map[string]string `json:"meta,omitempty"`
}

// Status of a payment, as far as we care.
type Status string

const (
	Succeeded Status = "succeeded"
	Failed    Status = "failed"   // refused, and nothing else will be tried
	Canceled  Status = "canceled" // or the checkout page has expired
	Waiting   Status = "waiting"  // for the bank, or for the payer (ActionURL)
)

// Payment is a PaymentIntent.
type Payment struct {
	ID        string
	TopUp     string // from its metadata; empty for a payment that is not ours
	Status    Status
	Cents     int64 // received, once succeeded; asked for, before
	Currency  string
	Method    string // pm_… that paid
	Card      *Card  // it, when it was saved for the customer; only where the payment was asked for
	Failure   string // the last refusal, for the payer
	ActionURL string // while waiting for the payer: where the bank asks
	Receipt   string // URL, once succeeded; only where the payment was asked for
	Invoice   string // in_… that it pays; empty: none
	// Fingerprint is Stripe's name for the number of the card that paid, whether it was saved or not; empty: unknown.
	Fingerprint string
	Customer    string            // cus_…; empty: none
	Meta        map[string]string // all of its metadata
}

// CreatePayment makes a payment and charges it. A refused card is an Error with outcome Declined.
func (c *Client) CreatePayment(ctx context.Context, key string, p NewPayment) (Payment, error) {
	params := &stripe.PaymentIntentParams{
		Amount:             stripe.Int64(p.Cents),
		Currency:           stripe.String(strings.ToLower(p.Currency)),
		Customer:           stripe.String(p.Customer),
		PaymentMethod:      stripe.String(p.Method),
		PaymentMethodTypes: stripe.StringSlice([]string{"card"}),
		Confirm:            stripe.Bool(true),
		Description:        stripe.String(p.Description),
	}
	if p.ReturnURL != "" {
		params.ReturnURL = stripe.String(p.ReturnURL)
	} else {
		params.OffSession = stripe.Bool(true)
	}
	if p.Receipt != "" {
		params.ReceiptEmail = stripe.String(p.Receipt)
	}
	for k, v := range p.Meta {
		params.AddMetadata(k, v)
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
	params.AddExpand("latest_charge")
	params.AddExpand("payment_method")
	pi, err := c.api.PaymentIntents.Get(id, params)
	if err != nil {
		return Payment{}, failure(err)
	}
	return payment(pi), nil
}

// CancelPayment gives up a payment that waits for the payer. One that cannot be given up any more, because it was paid
// meanwhile, is returned as it is.
func (c *Client) CancelPayment(ctx context.Context, key, id string) (Payment, error) {
	params := &stripe.PaymentIntentCancelParams{
		CancellationReason: stripe.String(string(stripe.PaymentIntentCancellationReasonAbandoned)),
	}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	pi, err := c.api.PaymentIntents.Cancel(id, params)
	if e := As(failure(err)); e != nil {
		if e.Code == string(stripe.ErrorCodePaymentIntentUnexpectedState) {
			return c.Payment(ctx, id)
		}
		return Payment{}, e
	}
	return payment(pi), nil
}

// Payments calls each with the payments that were made from a moment on (inclusive, to the second), newest first, until
// it returns an error. The results have no cards.
func (c *Client) Payments(ctx context.Context, from time.Time, each func(Payment) error) error {
	params := &stripe.PaymentIntentListParams{CreatedRange: &stripe.RangeQueryParams{GreaterThanOrEqual: from.Unix()}}
	params.Context = ctx
	params.Limit = stripe.Int64(100)
	it := c.api.PaymentIntents.List(params)
	for it.Next() {
		if err := each(payment(it.PaymentIntent())); err != nil {
			return err
		}
	}
	return failure(it.Err())
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
		ID:       pi.ID,
		TopUp:    pi.Metadata[metaTopUp],
		Status:   Waiting,
		Cents:    pi.Amount,
		Currency: strings.ToUpper(string(pi.Currency)),
	}
	if pi.PaymentMethod != nil {
		p.Method = pi.PaymentMethod.ID
		p.Card = savedCard(pi.PaymentMethod)
		if pi.PaymentMethod.Card != nil {
			p.Fingerprint = pi.PaymentMethod.Card.Fingerprint
		}
	}
	if p.Meta = pi.Metadata; pi.Customer != nil {
		p.Customer = pi.Customer.ID
	}
	if pi.Invoice != nil {
		p.Invoice = pi.Invoice.ID
	}
	if pi.LatestCharge != nil {
		p.Receipt = pi.LatestCharge.ReceiptURL
	}
	if pi.LastPaymentError != nil {
		p.Failure = text.Clip(pi.LastPaymentError.Msg, maxMessage)
	}
	switch pi.Status {
	case stripe.PaymentIntentStatusSucceeded:
		p.Status, p.Cents = Succeeded, pi.AmountReceived
	case stripe.PaymentIntentStatusRequiresAction:
		if a := pi.NextAction; a != nil && a.RedirectToURL != nil && a.RedirectToURL.URL != "" {
			p.ActionURL = a.RedirectToURL.URL
		} else {
			p.Status = Failed // there is no way to ask the payer
		}
	case stripe.PaymentIntentStatusRequiresPaymentMethod:
		p.Status = Failed // only on a checkout page can the payer choose another card
	case stripe.PaymentIntentStatusCanceled:
		p.Status = Canceled
	}
	return p
}
