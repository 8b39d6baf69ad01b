package stripe

import (
	"context"
	"strings"

	"github.com/stripe/stripe-go/v76"
)

// Dispute is a card's owner taking a payment back.
type Dispute struct {
	ID       string // dp_…
	Payment  string // pi_…
	Cents    int64
	Currency string
	Reason   string
	Open     bool
	Inquiry  bool        // the bank asks, and has taken nothing yet
	Won      bool        // once it is not open
	Moves    []BalanceTx // what Stripe took for it, and gave back
}

// disputePrevented is the status of a dispute that was settled before it became one. API versions since 2025-08-27 have
// it; the changes of the balance show whether it cost anything.
const disputePrevented stripe.DisputeStatus = "prevented"

// FraudWarning is a card issuer's word that a payment may be fraudulent. A dispute often follows; a refund before it
// saves the dispute's fee.
type FraudWarning struct {
	ID         string // issfr_…
	Payment    string // pi_…; empty if Stripe does not return it
	Type       string // such as "made_with_stolen_card"
	Actionable bool   // the payment is neither disputed nor fully refunded
}

// FraudWarning asks for the present state of an early fraud warning.
func (c *Client) FraudWarning(ctx context.Context, id string) (FraudWarning, error) {
	params := &stripe.RadarEarlyFraudWarningParams{}
	params.Context = ctx
	w, err := c.api.RadarEarlyFraudWarnings.Get(id, params)
	if err != nil {
		return FraudWarning{}, failure(err)
	}
	out := FraudWarning{ID: w.ID, Type: string(w.FraudType), Actionable: w.Actionable}
	if w.PaymentIntent != nil {
		out.Payment = w.PaymentIntent.ID
	}
	return out, nil
}

// Dispute asks for the present state of a dispute.
func (c *Client) Dispute(ctx context.Context, id string) (Dispute, error) {
	params := &stripe.DisputeParams{}
	params.Context = ctx
	d, err := c.api.Disputes.Get(id, params)
	if err != nil {
		return Dispute{}, failure(err)
	}
	out := Dispute{
		ID:       d.ID,
		Cents:    d.Amount,
		Currency: strings.ToUpper(string(d.Currency)),
		Reason:   string(d.Reason),
		Open:     true,
	}
	if d.PaymentIntent != nil {
		out.Payment = d.PaymentIntent.ID
	}
	switch d.Status {
	case stripe.DisputeStatusWon, stripe.DisputeStatusWarningClosed:
		out.Open, out.Won = false, true
	case stripe.DisputeStatusLost:
		out.Open = false
	case stripe.DisputeStatusWarningNeedsResponse, stripe.DisputeStatusWarningUnderReview:
		out.Inquiry = true
	}
	var net int64
	for _, b := range d.BalanceTransactions {
		out.Moves = append(out.Moves, balanceTx(b))
		net += b.Amount
	}
	if d.Status == disputePrevented {
		out.Open, out.Won = false, net >= 0
	}
	return out, nil
}
