package client

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Balance is what there is to spend.
type Balance struct {
	Available     money.Nano  `json:"available"`
	Held          money.Nano  `json:"held"`
	Accrued       money.Nano  `json:"accrued"`
	BurnPerHour   money.Micro `json:"burn_per_hour"`
	RunwaySeconds *int64      `json:"runway_seconds"` // nil: nothing is being billed
	Currency      string      `json:"currency"`
}

// Balance reads the org's balance.
func (c *Client) Balance(ctx context.Context) (Balance, error) {
	return get[Balance](ctx, c, "/billing/balance", nil)
}

// TopUp is one payment into the wallet.
type TopUp struct {
	ID          id.TopUp   `json:"id"`
	Amount      money.Nano `json:"amount"`
	Currency    string     `json:"currency"`
	State       string     `json:"state"` // pending, succeeded, failed, canceled
	CheckoutURL string     `json:"checkout_url"`
	Failure     string     `json:"failure"`
	CreatedAt   time.Time  `json:"created_at"`
	SettledAt   *time.Time `json:"settled_at"`
	Sandbox     bool       `json:"sandbox"`
}

// TopUp adds credit. A declined card is a top-up that has failed, no error.
func (c *Client) TopUp(ctx context.Context, amount money.Nano) (TopUp, error) {
	return post[TopUp](ctx, c, "/billing/topups", map[string]money.Nano{"amount": amount})
}

// GetTopUp looks at a payment.
func (c *Client) GetTopUp(ctx context.Context, t id.TopUp) (TopUp, error) {
	return get[TopUp](ctx, c, "/billing/topups/"+t.String(), nil)
}

// Transaction is one entry of the org's books.
type Transaction struct {
	ID             id.LedgerTx `json:"id"`
	At             time.Time   `json:"at"`
	Kind           string      `json:"kind"`
	Memo           string      `json:"memo"`
	Ref            string      `json:"ref"`
	Amount         money.Nano  `json:"amount"`
	Available      money.Nano  `json:"available"`
	Held           money.Nano  `json:"held"`
	Earned         money.Nano  `json:"earned"`
	AvailableAfter money.Nano  `json:"available_after"`
	HeldAfter      money.Nano  `json:"held_after"`
	EarnedAfter    money.Nano  `json:"earned_after"`
}

// Transactions is the org's books, newest first.
func (c *Client) Transactions(ctx context.Context, p PageOf) (Page[Transaction], error) {
	return get[Page[Transaction]](ctx, c, "/billing/transactions", p.query())
}
