package client

import (
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// PostpaidTerms are the terms on which an organisation pays afterwards.
type PostpaidTerms struct {
	Org      id.Org        `json:"org_id"`
	Name     string        `json:"name,omitempty"`
	State    PostpaidState `json:"state"`
	Limit    money.Nano    `json:"credit_limit"`      // used and not yet paid, at most
	Stopped  string        `json:"stopped,omitempty"` // why nothing more is lent although the state is on
	Reason   string        `json:"reason,omitempty"`  // of the last change, an admin's
	Since    *time.Time    `json:"since,omitempty"`   // the last change; nil: there was none
	Currency string        `json:"currency"`
	Used     money.Nano    `json:"used"` // of Limit: used or held on credit, and billed and not paid
	Owed     money.Nano    `json:"owed"` // of Used: billed and not paid
	Left     money.Nano    `json:"left"` // what the organisation can spend now, its own money included
	// WrittenOff was billed, given up, and not paid after all. It is not among Owed, and while it is there nothing is
	// lent.
	WrittenOff money.Nano `json:"written_off"`
}

// Postpaid is the terms on which an organisation pays afterwards, and its usage of the current month.
type Postpaid struct {
	PostpaidTerms
	Period *PostpaidPeriod `json:"period" doc:"the running one; null when you do not pay afterwards"`
}

// PostpaidPeriod is the usage of the current month.
type PostpaidPeriod struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// Charged is what was billed in it, every hour; Unbilled what was used since and is billed at the next full hour.
	Charged  money.Nano `json:"charged"`
	Unbilled money.Nano `json:"unbilled"`
	Currency string     `json:"currency"`
}

// PostpaidInvoice is an invoice of Stripe's.
type PostpaidInvoice struct {
	ID     string `json:"id"`
	Number string `json:"number,omitempty"` // none while it is a draft
	State  string `json:"state"`            // draft, open, paid, void, uncollectible
	// Net is what was used, in whole cents; with the tax it is the total. Of a draft all three are what it is to be.
	Net      money.Nano `json:"net"`
	Tax      Tax        `json:"tax"`
	Total    money.Nano `json:"total"`
	Paid     money.Nano `json:"paid"`
	Currency string     `json:"currency"`
	Start    time.Time  `json:"start"`
	End      time.Time  `json:"end"`
	// Charged is what was billed since the beginning until its end. The invoice is that in whole cents, less all earlier
	// ones.
	Charged money.Nano `json:"charged"`
	Failing bool       `json:"failing"` // the card did not pay it
	URL     string     `json:"url,omitempty"`
}

// PostpaidLines is what was used in a period.
type PostpaidLines struct {
	Start    time.Time      `json:"start"`
	End      time.Time      `json:"end"`
	Currency string         `json:"currency"`
	Used     money.Nano     `json:"used"`     // the lines and the storage together
	Storage  money.Nano     `json:"storage"`  // what volumes store, charged in the period
	Returned money.Nano     `json:"returned"` // given back for a host's fault, or by us
	Charged  money.Nano     `json:"charged"`  // billed: what of it your own money did not cover
	Items    []PostpaidLine `json:"items"`
}

// PostpaidLine is what was charged for a lease.
type PostpaidLine struct {
	Cluster id.Cluster `json:"cluster_id"`
	Lease   id.Lease   `json:"lease_id"`
	Amount  money.Nano `json:"amount"`
	RanFrom *time.Time `json:"ran_from"`
	RanTo   *time.Time `json:"ran_to"`
	Late    bool       `json:"late"` // it ran, or a part of it, before the period
}

// PayingInvoice is an invoice that the default card is to pay now.
type PayingInvoice struct {
	Invoice string `json:"invoice"`
	State   string `json:"state" doc:"asked: Stripe charges your default card; look at the invoice for what came of it"`
}

// OrgInvoice is an organisation's invoice as admins see it.
type OrgInvoice struct {
	PostpaidInvoice
	WriteOff   *WriteOff  `json:"write_off"`    // nil: it was never given up
	Lost       money.Nano `json:"lost"`         // what lost disputes of its payment left owed, and was not given up
	LostUnpaid money.Nano `json:"lost_unpaid"`  // what they left unpaid, given up or not: what may still be paid by bank
	PaidByBank money.Nano `json:"paid_by_bank"` // of what they took
}

// WriteOff is an invoice that was written off.
type WriteOff struct {
	State     WriteOffState `json:"state"`
	Amount    money.Nano    `json:"amount"` // what is not collected, with tax; 0 until it is booked
	Tax       money.Nano    `json:"tax"`    // of it: not owed to a tax office any more
	Reason    string        `json:"reason"` // the admin's
	Failure   string        `json:"failure,omitempty"`
	DecidedAt time.Time     `json:"decided_at"`
	BookedAt  *time.Time    `json:"booked_at"`
	ClosedAt  *time.Time    `json:"closed_at"` // when it was paid or voided after all
}

// ApprovedRefund is a refund of an invoice after which hosts keep what they earned.
type ApprovedRefund struct {
	ID    string `json:"id"`
	State string `json:"state" doc:"released"`
}

// ChangePostpaidRequest is the body of ChangePostpaid.
type ChangePostpaidRequest struct {
	On          bool   `json:"on" doc:"whether the organisation pays afterwards"`
	CreditLimit string `json:"credit_limit,omitempty" doc:"a decimal: what it may use and owe at most; with on" example:"500.00"`
	Reason      string `json:"reason" doc:"the organisation reads it"`
}

// PostpaidUsageQuery selects the period of an invoice.
type PostpaidUsageQuery struct {
	Invoice string `query:"invoice" doc:"of an invoice's period, by its id; left out: of the running one"`
}

// WriteOffInvoiceRequest is the body of WriteOffInvoice.
type WriteOffInvoiceRequest struct {
	Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
}

// BookBankPaymentRequest is the body of BookBankPayment.
type BookBankPaymentRequest struct {
	Amount    string `json:"amount" doc:"a decimal in whole cents: at most the invoice's lost_unpaid" example:"7.90"`
	Reference string `json:"reference" minLength:"1" maxLength:"140" doc:"of the transfer, as the bank's statement has it: of an invoice, one is booked once" example:"2026-11-20/4711"`
	Reason    string `json:"reason" minLength:"1" maxLength:"500" doc:"the audit trail keeps it"`
}
