package stripepay

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
	Won      bool        // once it is not open
	Moves    []BalanceTx // what Stripe took for it, and gave back
}

// Dispute asks for the present state of a dispute.
func (c *Client) Dispute(ctx context.Context, id string) (Dispute, error) {
	params := &stripe.DisputeParams{}
	params.Context = ctx
	d, err := c.api.Disputes.Get(id, params)
	if err != nil {
		return Dispute{}, failure(err)
	}
	out := Dispute{ID: d.ID, Cents: d.Amount, Currency: strings.ToUpper(string(d.Currency)), Reason: string(d.Reason), Open: true}
	if d.PaymentIntent != nil {
		out.Payment = d.PaymentIntent.ID
	}
	switch d.Status {
	case stripe.DisputeStatusWon, stripe.DisputeStatusWarningClosed:
		out.Open, out.Won = false, true
	case stripe.DisputeStatusLost:
		out.Open = false
	}
	for _, b := range d.BalanceTransactions {
		out.Moves = append(out.Moves, balanceTx(b))
	}
	return out, nil
}
