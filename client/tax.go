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
	Offices  []TaxOffice   `json:"offices"` // by country
	// all tax ever charged, less what was given back and what was paid to tax offices
	Book    money.Nano `json:"book"`
	Payable money.Nano `json:"payable"` // the same by the ledger
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

// TaxOffice is what a country's tax office gets for a period, and has got.
type TaxOffice struct {
	Country  string     `json:"country"`
	Tax      money.Nano `json:"tax"`
	Remitted money.Nano `json:"remitted"` // for periods that have time in common with this one
	Left     money.Nano `json:"left"`
}

// TaxRemittance is a payment to a tax office from the platform's bank account.
type TaxRemittance struct {
	Period  string `json:"period"`
	Country string `json:"country"`
	Amount  string `json:"amount"` // a decimal
	Reason  string `json:"reason"` // such as the reference of the bank's transfer
}

// RemitTax books that a tax office was paid, and returns the report of the period as it is then.
func (c *Client) RemitTax(ctx context.Context, r TaxRemittance) (TaxReport, error) {
	return post[TaxReport](ctx, c, "/admin/tax/remittances", r)
}
