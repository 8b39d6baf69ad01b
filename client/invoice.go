package client

import (
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Invoice is what an organisation used in a calendar month of its zone, and what it paid in.
type Invoice struct {
	Number string `json:"number"`
	Month  string `json:"month"` // YYYY-MM
	From   string `json:"from"`  // first day, YYYY-MM-DD
	To     string `json:"to"`    // last day
	Zone   string `json:"zone"`
	Issued string `json:"issued,omitempty"` // the day after the last; "" while the month goes on
	// nothing will be added: the month is over for two days and all its leases are settled
	Final         bool             `json:"final"`
	Merchant      Party            `json:"merchant"` // of record; no name: the platform's operator has set none
	Customer      Party            `json:"customer"`
	CustomerKnown bool             `json:"customer_told"` // the customer has given its legal details
	Currency      string           `json:"currency"`
	Lines         []StatementGroup `json:"lines"`   // one per cluster, then one per volume
	Credits       []InvoiceCredit  `json:"credits"` // given back in this month
	Usage         money.Nano       `json:"usage"`   // sum of the lines
	Credited      money.Nano       `json:"credited"`
	Total         money.Nano       `json:"total"` // usage less credits, excluding tax
	EnergyWh      string           `json:"energy_wh"`
	// OnCredit was billed in this month to an org that pays afterwards. It is due with that credit's own invoices; what
	// it is short of Total was paid from prepaid credit, or is billed at the next full hour.
	OnCredit money.Nano `json:"on_credit"`

	Payments []InvoicePayment `json:"payments"` // paid in, and given back, in this month
	Paid     money.Nano       `json:"paid"`     // their sum, excluding tax
	Tax      money.Nano       `json:"tax"`      // charged on them, less what was given back
}

// InvoiceCredit is what was given back for usage.
type InvoiceCredit struct {
	ID     id.LedgerTx `json:"id"`
	At     time.Time   `json:"at"`
	Kind   string      `json:"kind"` // service_credit: a host's fault; compensation: by the platform's operator
	Why    string      `json:"why"`
	Ref    string      `json:"ref"` // of the cluster
	Amount money.Nano  `json:"amount"`
}

// InvoicePayment is money that was paid in, or given back.
type InvoicePayment struct {
	Number   string     `json:"number"`   // of the entry in the tax book, which may have gaps: no document number
	Document string     `json:"document"` // number of the receipt or credit note; "": none in the series
	At       time.Time  `json:"at"`
	Kind     TaxKind    `json:"kind"`
	Ref      string     `json:"ref"`     // of the payment or refund
	Net      money.Nano `json:"net"`     // negative: given back
	Percent  string     `json:"percent"` // rate of the tax; "0": none
	Name     string     `json:"name"`    // of the tax
	Country  string     `json:"country"` // where it is taxed, or would be
	VATID    string     `json:"vat_id"`  // the customer's, where it is why there is no tax
	Reason   TaxReason  `json:"reason"`
	Note     string     `json:"note"` // a sentence that belongs to it
	Tax      money.Nano `json:"tax"`
	Total    money.Nano `json:"total"`
}
