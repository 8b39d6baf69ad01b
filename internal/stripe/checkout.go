package stripe

import (
	"context"
	"strings"

	"github.com/stripe/stripe-go/v76"
)

// NewCheckout asks for a page of Stripe's on which the payer pays and saves the card.
type NewCheckout struct {
	TopUp       string `json:"topup"` // prefixed id, kept as reference and metadata
	Customer    string `json:"customer"`
	Cents       int64  `json:"cents"`
	Currency    string `json:"currency"` // ISO 4217, upper case
	Description string `json:"description"`
	SuccessURL  string `json:"success_url"`
	CancelURL   string `json:"cancel_url"`
	Receipt     string `json:"receipt,omitempty"` // e-mail address to which Stripe sends the receipt
	// Meta is kept as further metadata of the payment, as NewPayment.Meta.
	Meta map[string]string `json:"meta,omitempty"`
}

// Checkout is a checkout session.
type Checkout struct {
	ID      string // cs_…
	TopUp   string // or the setup it belongs to
	URL     string // for the payer; empty once it is over
	Open    bool   // the payer may still pay
	Payment string // pi_…, once there is one
	Setup   string // seti_…, of a page on which a card is saved
}

// CreateCheckout makes a checkout page.
func (c *Client) CreateCheckout(ctx context.Context, key string, p NewCheckout) (Checkout, error) {
	params := &stripe.CheckoutSessionParams{
		Mode:     stripe.String(string(stripe.CheckoutSessionModePayment)),
		Customer: stripe.String(p.Customer),
		// Without this Stripe offers whatever the dashboard has switched on: debits that succeed or fail days later, and
		// methods that cannot be charged again. Only cards are handled here.
		PaymentMethodTypes: stripe.StringSlice([]string{"card"}),
		ClientReferenceID:  stripe.String(p.TopUp),
		SuccessURL:         stripe.String(p.SuccessURL),
		CancelURL:          stripe.String(p.CancelURL),
		LineItems: []*stripe.CheckoutSessionLineItemParams{{
			Quantity: stripe.Int64(1),
			PriceData: &stripe.CheckoutSessionLineItemPriceDataParams{
				Currency: stripe.String(strings.ToLower(p.Currency)), UnitAmount: stripe.Int64(p.Cents),
				ProductData: &stripe.CheckoutSessionLineItemPriceDataProductDataParams{Name: stripe.String(p.Description)},
			},
		}},
		PaymentIntentData: &stripe.CheckoutSessionPaymentIntentDataParams{
			SetupFutureUsage: stripe.String(string(stripe.PaymentIntentSetupFutureUsageOffSession)),
			Metadata:         map[string]string{metaTopUp: p.TopUp},
		},
	}
	for k, v := range p.Meta {
		params.PaymentIntentData.Metadata[k] = v
	}
	if p.Receipt != "" {
		params.PaymentIntentData.ReceiptEmail = stripe.String(p.Receipt)
	}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	s, err := c.api.CheckoutSessions.New(params)
	if err != nil {
		return Checkout{}, failure(err)
	}
	return checkout(s), nil
}

// Checkout asks for the present state of a checkout page.
func (c *Client) Checkout(ctx context.Context, id string) (Checkout, error) {
	params := &stripe.CheckoutSessionParams{}
	params.Context = ctx
	s, err := c.api.CheckoutSessions.Get(id, params)
	if err != nil {
		return Checkout{}, failure(err)
	}
	return checkout(s), nil
}

func checkout(s *stripe.CheckoutSession) Checkout {
	c := Checkout{ID: s.ID, TopUp: s.ClientReferenceID, URL: s.URL, Open: s.Status == stripe.CheckoutSessionStatusOpen}
	if s.PaymentIntent != nil {
		c.Payment = s.PaymentIntent.ID
	}
	if s.SetupIntent != nil {
		c.Setup = s.SetupIntent.ID
	}
	return c
}
