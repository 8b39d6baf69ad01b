package client

import (
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

// SetBudgetRequest is the body of SetBudget.
type SetBudgetRequest struct {
	Project     string  `json:"project,omitempty" doc:"left out: the budget of the whole organisation"`
	Cap         *string `json:"cap,omitempty" doc:"a decimal; what may be spent or held in all; left out: no cap" example:"500.00"`
	MaxPrice    *string `json:"max_price_per_hour,omitempty" doc:"a decimal; the dearest cluster; left out: any"`
	MaxDuration *int64  `json:"max_duration,omitempty" doc:"seconds; the longest run of a cluster; left out: any"`
}
