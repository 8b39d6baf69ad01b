package client

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Party is one side of a document.
type Party struct {
	Name    string   `json:"name"`
	Address []string `json:"address"` // lines
	Country string   `json:"country"`
	VATID   string   `json:"vat_id"`
}

// Receipt is for one payment, with both parties as they were when it arrived. Only Returned and Left are of now.
type Receipt struct {
	Number        string     `json:"number"`
	TopUp         id.TopUp   `json:"topup_id"`
	PaidAt        time.Time  `json:"paid_at"`
	Merchant      Party      `json:"merchant"` // no name: the platform's operator has set none
	Customer      Party      `json:"customer"`
	CustomerKnown bool       `json:"customer_told"` // the customer had given its legal details
	What          string     `json:"what"`
	Net           money.Nano `json:"net"`
	Tax           Tax        `json:"tax"`
	Total         money.Nano `json:"total"`
	Currency      string     `json:"currency"`
	Payment       string     `json:"payment"` // Stripe's id
	Automatic     bool       `json:"automatic"`
	Sandbox       bool       `json:"sandbox"`
	Returned      []Returned `json:"returned"` // oldest first
	Left          money.Nano `json:"left"`     // of Total
}

// Returned is a part of a payment that went back, with the tax on it.
type Returned struct {
	At    time.Time  `json:"at"`
	Kind  string     `json:"kind"`  // refund, dispute_lost
	State string     `json:"state"` // pending: on its way
	Net   money.Nano `json:"net"`
	Tax   money.Nano `json:"tax"`
	Total money.Nano `json:"total"`
}

// Receipt reads the receipt of a payment.
func (c *Client) Receipt(ctx context.Context, t id.TopUp) (Receipt, error) {
	return get[Receipt](ctx, c, "/billing/topups/"+t.String()+"/receipt", nil)
}
