package stripe

import (
	"context"

	"github.com/stripe/stripe-go/v76"

	"github.com/musterhq/muster/internal/text"
)

// Card is a card that Stripe keeps for a customer.
type Card struct {
	Method   string // pm_…
	Brand    string // visa, mastercard, …
	Last4    string
	ExpMonth int64
	ExpYear  int64
	// Fingerprint is Stripe's name for the card's number, the same for every customer who saves it; "" = unknown.
	Fingerprint string
}

// savedCard is the card behind a payment method that is shown whole and was saved; else nil.
func savedCard(m *stripe.PaymentMethod) *Card {
	if m == nil || m.Card == nil || m.Customer == nil {
		return nil
	}
	return &Card{m.ID, string(m.Card.Brand), m.Card.Last4, m.Card.ExpMonth, m.Card.ExpYear, m.Card.Fingerprint}
}

// metaSetup is the metadata key under which a SetupIntent names our record of it.
const metaSetup = "setup"

// NewSetup asks for a page of Stripe's on which the payer saves a card for later payments.
type NewSetup struct {
	Setup      string `json:"setup"` // prefixed id, kept as reference and metadata
	Customer   string `json:"customer"`
	Currency   string `json:"currency"` // ISO 4217, upper case
	SuccessURL string `json:"success_url"`
	CancelURL  string `json:"cancel_url"`
}

// CreateSetup makes the page. Its Checkout has no payment, and a Setup once it is complete.
func (c *Client) CreateSetup(ctx context.Context, key string, p NewSetup) (Checkout, error) {
	params := &stripe.CheckoutSessionParams{
		Mode: stripe.String(string(stripe.CheckoutSessionModeSetup)), Customer: stripe.String(p.Customer),
		PaymentMethodTypes: stripe.StringSlice([]string{"card"}), ClientReferenceID: stripe.String(p.Setup),
		SuccessURL: stripe.String(p.SuccessURL), CancelURL: stripe.String(p.CancelURL),
		SetupIntentData: &stripe.CheckoutSessionSetupIntentDataParams{Metadata: map[string]string{metaSetup: p.Setup}},
	}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	s, err := c.api.CheckoutSessions.New(params)
	if err != nil {
		return Checkout{}, failure(err)
	}
	return checkout(s), nil
}

// Setup is the saving of a card.
type Setup struct {
	ID      string // seti_…
	Setup   string // from its metadata; empty for one that is not ours
	Done    bool
	Card    *Card  // once done
	Failure string // the last refusal, for the payer
}

// Setup asks for the present state of a SetupIntent.
func (c *Client) Setup(ctx context.Context, id string) (Setup, error) {
	params := &stripe.SetupIntentParams{}
	params.Context = ctx
	params.AddExpand("payment_method")
	si, err := c.api.SetupIntents.Get(id, params)
	if err != nil {
		return Setup{}, failure(err)
	}
	s := Setup{
		ID:    si.ID,
		Setup: si.Metadata[metaSetup],
		Done:  si.Status == stripe.SetupIntentStatusSucceeded,
		Card:  savedCard(si.PaymentMethod),
	}
	if si.LastSetupError != nil {
		s.Failure = text.Clip(si.LastSetupError.Msg, maxMessage)
	}
	return s, nil
}

// DetachCard makes Stripe forget a card. One that it does not have any more is no error.
func (c *Client) DetachCard(ctx context.Context, key, method string) error {
	params := &stripe.PaymentMethodDetachParams{}
	params.Context = ctx
	params.SetIdempotencyKey(key)
	_, err := c.api.PaymentMethods.Detach(method, params)
	if e := As(failure(err)); e != nil && e.Outcome != Missing && e.Outcome != Rejected {
		return e
	}
	return nil
}
