package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/musterhq/muster/internal/money"
)

// Legal is the organisation's legal identity, as documents name it. If Name is "", it is not known.
type Legal struct {
	Name      string     `json:"name" doc:"legal name; empty: there are no legal details"`
	Address   []string   `json:"address" doc:"lines, without the country"`
	Country   string     `json:"country" doc:"ISO 3166-1 alpha-2"`
	VATID     string     `json:"vat_id" doc:"empty: none"`
	ChangedAt *time.Time `json:"changed_at" doc:"null: there are no legal details"`
}

// Legal returns the organisation's legal details.
func (c *Client) Legal(ctx context.Context) (Legal, error) {
	return get[Legal](ctx, c, "/org/legal", nil)
}

// SetLegal replaces the legal details and returns them as stored. ChangedAt is not sent.
func (c *Client) SetLegal(ctx context.Context, l Legal) (out Legal, err error) {
	in := map[string]any{
		"name":    l.Name,
		"address": append([]string{}, l.Address...),
		"country": l.Country,
		"vat_id":  l.VATID,
	}
	err = c.call(ctx, http.MethodPut, "/org/legal", nil, in, &out)
	return out, err
}

// EraseLegal deletes the organisation's legal details.
func (c *Client) EraseLegal(ctx context.Context) error { return c.remove(ctx, "/org/legal", nil) }

// Zone is an organisation's time zone.
type Zone struct {
	Zone string `json:"zone" doc:"an IANA time zone: statements, earnings and documents use its days" example:"Europe/Berlin"`
}

// Zone returns the organisation's time zone, an IANA name such as Europe/Berlin. Days, months and years of statements,
// earnings and documents are in this zone.
func (c *Client) Zone(ctx context.Context) (string, error) {
	z, err := get[Zone](ctx, c, "/org/zone", nil)
	return z.Zone, err
}

// SetZone sets the organisation's time zone. An unknown name is an error.
func (c *Client) SetZone(ctx context.Context, name string) error {
	var out Zone
	return c.call(ctx, http.MethodPut, "/org/zone", nil, Zone{name}, &out)
}

// TaxReport is the taxes of a period. For admins.
type TaxReport struct {
	Period   string        `json:"period"` // as requested
	From     time.Time     `json:"from"`
	To       time.Time     `json:"to"` // exclusive
	Currency string        `json:"currency"`
	Lines    []DeclaredTax `json:"lines"`
	Net      money.Nano    `json:"net"` // sums of the lines
	Tax      money.Nano    `json:"tax"`
	Offices  []TaxOffice   `json:"offices"` // what each country gets and has got, by country
	// Book is all tax ever charged less what was given back and what was paid to tax offices, by this book; Payable the
	// same by the ledger. They are equal.
	Book    money.Nano `json:"book"`
	Payable money.Nano `json:"payable"`
}

// DeclaredTax is what was sold to one country at one rate for one reason.
type DeclaredTax struct {
	Country   string     `json:"country"` // "": unknown
	Reason    TaxReason  `json:"reason"`
	Name      string     `json:"name"`
	Percent   string     `json:"percent"`
	VATID     string     `json:"vat_id"`
	Sales     int64      `json:"sales"` // payments
	Sold      money.Nano `json:"sold"`  // without tax, refunds that did not arrive included
	Charged   money.Nano `json:"charged"`
	Returned  money.Nano `json:"returned"`   // without tax
	GivenBack money.Nano `json:"given_back"` // tax
	Net       money.Nano `json:"net"`        // Sold − Returned
	Tax       money.Nano `json:"tax"`        // Charged − GivenBack: to be declared
}

// TaxReport returns the taxes of a year, quarter or month: 2026, 2026-Q1, 2026-01.
func (c *Client) TaxReport(ctx context.Context, period string) (TaxReport, error) {
	return get[TaxReport](ctx, c, "/admin/tax", url.Values{"period": {period}})
}

// TaxOffice is what is due to a country's tax office for a period, and what was paid.
type TaxOffice struct {
	Country  string     `json:"country"`
	Tax      money.Nano `json:"tax"`
	Remitted money.Nano `json:"remitted"` // for periods that overlap this one
	Left     money.Nano `json:"left"`
}

// TaxRemittance is a payment to a tax office from the platform's bank account.
type TaxRemittance struct {
	Period  string `json:"period"`
	Country string `json:"country"`
	Amount  string `json:"amount"` // a decimal
	Reason  string `json:"reason"` // such as the reference of the bank's transfer
}

// RemitTax records a payment to a tax office, and returns the updated report of the period.
func (c *Client) RemitTax(ctx context.Context, r TaxRemittance) (TaxReport, error) {
	return post[TaxReport](ctx, c, "/admin/tax/remittances", r)
}
