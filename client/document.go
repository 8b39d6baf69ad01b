package client

import (
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Document is a receipt, a credit note or a self-billing document as lists show it.
type Document struct {
	Number   string         `json:"number" doc:"without gaps in its series and year" example:"R-2026-000001"`
	Series   DocumentSeries `json:"series" enum:"receipt,credit_note,self_billing"`
	Org      id.Org         `json:"org_id"`
	OrgName  string         `json:"org"`
	Party    string         `json:"party" doc:"the customer or supplier as the document names it; empty: erased when its retention was over"`
	IssuedAt time.Time      `json:"issued_at"`
	Date     string         `json:"date" doc:"the day of issue in the document's time zone, YYYY-MM-DD"`
	Zone     string         `json:"zone" doc:"the organisation's time zone when it was issued"`
	Corrects string         `json:"corrects" doc:"number of the document that it corrects or cancels; empty: none of the register"`
	Total    money.Nano     `json:"total" doc:"of a credit note: what is given back, negative where it cancels one"`
	Currency string         `json:"currency"`
	TopUp    *id.TopUp      `json:"topup_id" doc:"of a receipt: the payment; null otherwise"`
	Erased   bool           `json:"erased" doc:"the content was erased when its retention was over; the number stays"`
}

// FullDocument is a document with its content: one of Receipt, CreditNote and SelfBilling is set unless it was erased.
type FullDocument struct {
	Document
	CorrectedBy []string    `json:"corrected_by" doc:"numbers of the documents that correct or cancel it, oldest first"`
	Receipt     *Receipt    `json:"receipt" doc:"null: it is none, or was erased"`
	CreditNote  *CreditNote `json:"credit_note" doc:"null: it is none, or was erased"`
	SelfBilling *SelfBill   `json:"self_billing" doc:"null: it is none, or was erased"`
}

// CreditNote corrects a receipt or an invoice of which a part was given back.
type CreditNote struct {
	Number   string    `json:"number"`
	IssuedAt time.Time `json:"issued_at"`
	Corrects string    `json:"corrects"` // number of the receipt or invoice
	Cancels  string    `json:"cancels"`  // number of an earlier credit note that this one cancels; "": none
	// refund, refund_returned, dispute_lost, invoice_refund, invoice_refund_returned
	Kind     TaxKind    `json:"kind"`
	Ref      string     `json:"ref"`      // id of the refund, or of the payment that was disputed
	TopUp    *id.TopUp  `json:"topup_id"` // null: an invoice is corrected
	Merchant Party      `json:"merchant"` // both parties as on the document that is corrected
	Customer Party      `json:"customer"`
	Net      money.Nano `json:"net"` // given back; negative: a credit note is cancelled
	Tax      Tax        `json:"tax"` // given back with it
	Total    money.Nano `json:"total"`
	Currency string     `json:"currency"`
	Sandbox  bool       `json:"sandbox"` // no real money moved
}

// SelfBill is the self-billing document of an operator for a calendar month (UTC).
type SelfBill struct {
	Number        string     `json:"number"`
	IssuedAt      time.Time  `json:"issued_at"`
	Month         string     `json:"month"`    // YYYY-MM
	From          string     `json:"from"`     // first day, YYYY-MM-DD
	To            string     `json:"to"`       // last day
	Supplier      Party      `json:"supplier"` // the operator
	SupplierKnown bool       `json:"supplier_told"`
	Recipient     Party      `json:"recipient"` // the merchant of record; no name: the platform's operator has set none
	Billed        money.Nano `json:"billed"`    // to renters for the operator's hosts
	Fee           money.Nano `json:"fee"`       // kept by the platform, less what it gave back of it
	Earned        money.Nano `json:"earned"`    // the operator's part
	// of what was earned, in this month or before: given back to renters, or refused
	Returned  money.Nano   `json:"returned"`
	Total     money.Nano   `json:"total"` // earned less returned; negative: more went back than was earned
	Currency  string       `json:"currency"`
	Treatment VATTreatment `json:"vat_treatment"`
	Note      string       `json:"vat_note"`
	Wording   string       `json:"wording"`
	Sandbox   bool         `json:"sandbox"` // no real money moved
}

// Party is one side of a document.
type Party struct {
	Name    string   `json:"name"`
	Address []string `json:"address"` // lines
	Country string   `json:"country"` // ISO 3166-1 alpha-2; "" where the address says it
	VATID   string   `json:"vat_id"`  // "": none
}

// Receipt is for one payment, with both parties as they were when it arrived. Only Returned and Left are of now.
type Receipt struct {
	// of the series of receipts; older ones keep the number they were issued under
	Number        string     `json:"number"`
	IssuedAt      time.Time  `json:"issued_at"`
	TopUp         id.TopUp   `json:"topup_id"`
	PaidAt        time.Time  `json:"paid_at"`
	Merchant      Party      `json:"merchant"` // of record; no name: the platform's operator has set none
	Customer      Party      `json:"customer"`
	CustomerKnown bool       `json:"customer_told"` // the customer had given its legal details
	What          string     `json:"what"`          // was paid for
	Net           money.Nano `json:"net"`           // went into the wallet
	Tax           Tax        `json:"tax"`
	Total         money.Nano `json:"total"` // was charged
	Currency      string     `json:"currency"`
	Payment       string     `json:"payment"` // Stripe's id
	Automatic     bool       `json:"automatic"`
	Sandbox       bool       `json:"sandbox"` // no real money moved

	Returned []Returned `json:"returned"` // since then, oldest first
	Left     money.Nano `json:"left"`     // of Total
}

// Returned is a part of a payment that went back, with the tax on it.
type Returned struct {
	At    time.Time    `json:"at"`
	Kind  TaxKind      `json:"kind"`  // refund, dispute_lost
	State PaymentState `json:"state"` // pending: on its way
	Net   money.Nano   `json:"net"`
	Tax   money.Nano   `json:"tax"`
	Total money.Nano   `json:"total"`
}

// DocumentYear selects a calendar year of documents.
type DocumentYear struct {
	Year string `query:"year" required:"true" doc:"calendar year of issue in UTC, such as 2026" example:"2026"`
}

// DocumentsQuery selects documents.
type DocumentsQuery struct {
	PageOf
	Series string `query:"series" enum:"receipt,credit_note,self_billing" doc:"left out: all"`
	Year   int    `query:"year" minimum:"2000" maximum:"9999" doc:"of the number; left out: all" example:"2026"`
}

// AllDocumentsQuery selects documents of all organisations.
type AllDocumentsQuery struct {
	DocumentsQuery
	Org string `query:"org" maxLength:"200" doc:"left out: all organisations"`
}
