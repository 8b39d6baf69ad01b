package client

import (
	"context"
	"net/url"

	"github.com/musterhq/muster/internal/money"
)

// TaxReport is the taxes of a period, for platform operators.
type TaxReport struct {
	Period   string        `json:"period"`
	From     string        `json:"from"`
	To       string        `json:"to"` // exclusive
	Currency string        `json:"currency"`
	Lines    []DeclaredTax `json:"lines"`
	Net      money.Nano    `json:"net"`
	Tax      money.Nano    `json:"tax"`
	Book     money.Nano    `json:"book"`    // all tax ever charged, less what was given back
	Payable  money.Nano    `json:"payable"` // the same by the ledger
}

// DeclaredTax is what was sold to one country at one rate for one reason.
type DeclaredTax struct {
	Country   string     `json:"country"`
	Reason    string     `json:"reason"`
	Name      string     `json:"name"`
	Percent   string     `json:"percent"`
	VATID     string     `json:"vat_id"`
	Sales     int64      `json:"sales"`
	Sold      money.Nano `json:"sold"`
	Charged   money.Nano `json:"charged"`
	Returned  money.Nano `json:"returned"`
	GivenBack money.Nano `json:"given_back"`
	Net       money.Nano `json:"net"`
	Tax       money.Nano `json:"tax"`
}

// TaxReport reads the taxes of a year, quarter or month: 2026, 2026-Q1, 2026-01.
func (c *Client) TaxReport(ctx context.Context, period string) (TaxReport, error) {
	return get[TaxReport](ctx, c, "/admin/tax", url.Values{"period": {period}})
}
