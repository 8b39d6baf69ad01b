package client

import (
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

// Zone is an organisation's time zone.
type Zone struct {
	Zone string `json:"zone" doc:"an IANA time zone: statements, earnings and documents use its days" example:"Europe/Berlin"`
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

// TaxOffice is what is due to a country's tax office for a period, and what was paid.
type TaxOffice struct {
	Country  string     `json:"country"`
	Tax      money.Nano `json:"tax"`
	Remitted money.Nano `json:"remitted"` // for periods that overlap this one
	Left     money.Nano `json:"left"`
}

// SetLegalRequest is the body of SetLegal.
type SetLegalRequest struct {
	Name    string   `json:"name" doc:"legal name"`
	Address []string `json:"address" doc:"1 to 6 lines, without the country"`
	Country string   `json:"country" doc:"ISO 3166-1 alpha-2" example:"DE"`
	VATID   string   `json:"vat_id,omitempty" doc:"left out: none; its form is checked for the EU and the United Kingdom, and its check digits where the country has one rule; whether it was given out is not" example:"DE123456788"`
}
