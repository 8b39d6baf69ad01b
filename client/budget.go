package client

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Budget is what an organisation, or one of its projects, may spend.
type Budget struct {
	ID          id.Budget    `json:"id"`
	Project     string       `json:"project" doc:"empty: the whole organisation"`
	Cap         *money.Nano  `json:"cap"`
	Spent       money.Nano   `json:"spent" doc:"booked since the budget was set; notices of a half, four fifths and all count this"`
	Committed   money.Nano   `json:"committed" doc:"spent, and what is held now for the next hour of clusters: never more than the cap"`
	Left        *money.Nano  `json:"left" doc:"null: no cap"`
	MaxPrice    *money.Micro `json:"max_price_per_hour" doc:"of one cluster"`
	MaxDuration *int64       `json:"max_duration" doc:"seconds, of one cluster"`
	Currency    string       `json:"currency"`
	Since       time.Time    `json:"since"`
}

// NewBudget is a budget to be set. Nil: no such limit.
type NewBudget struct {
	Project     string       `json:"project,omitempty"`
	Cap         *money.Nano  `json:"cap,omitempty"`
	MaxPrice    *money.Micro `json:"max_price_per_hour,omitempty"`
	MaxDuration *int64       `json:"max_duration,omitempty"`
}

// SetBudget makes a budget, or changes the limits of the project's.
func (c *Client) SetBudget(ctx context.Context, b NewBudget) (Budget, error) {
	return post[Budget](ctx, c, "/budgets", b)
}

// Budgets are the organisation's own and those of its projects.
func (c *Client) Budgets(ctx context.Context) (Page[Budget], error) {
	return get[Page[Budget]](ctx, c, "/budgets", nil)
}

// RemoveBudget lifts a budget.
func (c *Client) RemoveBudget(ctx context.Context, b id.Budget) error {
	return c.remove(ctx, "/budgets/"+b.String(), nil)
}
