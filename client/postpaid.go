package client

import (
	"context"
	"net/http"
	"net/url"
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

// PostpaidInvoices lists the invoices, newest first.
func (c *Client) PostpaidInvoices(ctx context.Context) (Page[PostpaidInvoice], error) {
	return get[Page[PostpaidInvoice]](ctx, c, "/billing/postpaid/invoices", nil)
}

// PostpaidUsage returns what was used in an invoice's period; "" is the current one.
func (c *Client) PostpaidUsage(ctx context.Context, invoice string) (PostpaidLines, error) {
	return get[PostpaidLines](ctx, c, "/billing/postpaid/usage", url.Values{"invoice": {invoice}})
}

// PayingInvoice is an invoice that the default card is to pay now.
type PayingInvoice struct {
	Invoice string `json:"invoice"`
	State   string `json:"state" doc:"asked: Stripe charges your default card; look at the invoice for what came of it"`
}

// PayPostpaidInvoice charges the default card for an invoice that it did not pay.
func (c *Client) PayPostpaidInvoice(ctx context.Context, invoice string) error {
	_, err := post[PayingInvoice](ctx, c, "/billing/postpaid/invoices/"+url.PathEscape(invoice)+"/pay", struct{}{})
	return err
}

// Postpaid returns the organisation's terms.
func (c *Client) Postpaid(ctx context.Context) (Postpaid, error) {
	return get[Postpaid](ctx, c, "/billing/postpaid", nil)
}

// PostpaidOrgs lists the organisations that pay afterwards or did. PostpaidOrgs and ChangePostpaid are for admins.
func (c *Client) PostpaidOrgs(ctx context.Context, p PageOf) (Page[PostpaidTerms], error) {
	return get[Page[PostpaidTerms]](ctx, c, "/admin/postpaid", p.query())
}

// PostpaidChange lets an organisation pay afterwards with a limit, or ends it.
type PostpaidChange struct {
	On     bool   `json:"on"`
	Limit  string `json:"credit_limit,omitempty"`
	Reason string `json:"reason"` // shown to the organisation
}

// ChangePostpaid changes an org's terms.
func (c *Client) ChangePostpaid(ctx context.Context, org id.Org, change PostpaidChange) (out PostpaidTerms, err error) {
	return out, c.call(ctx, http.MethodPatch, "/admin/postpaid/"+org.String(), nil, change, &out)
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

// OrgInvoices lists an organisation's invoices, newest first. OrgInvoices and WriteOff are for admins.
func (c *Client) OrgInvoices(ctx context.Context, org id.Org) (Page[OrgInvoice], error) {
	return get[Page[OrgInvoice]](ctx, c, "/admin/orgs/"+org.String()+"/invoices", nil)
}

// WriteOff writes off an invoice that the card did not pay, or what lost disputes of its payment left owed. The audit
// log has the reason.
func (c *Client) WriteOff(ctx context.Context, org id.Org, invoice, reason string) (OrgInvoice, error) {
	return post[OrgInvoice](ctx, c, "/admin/orgs/"+org.String()+"/invoices/"+url.PathEscape(invoice)+"/write-off",
		map[string]string{"reason": reason})
}

// BankPayment is a transfer to the platform's bank account, for what lost disputes of an invoice's payment left unpaid.
type BankPayment struct {
	Amount    string `json:"amount"`    // a decimal in whole cents
	Reference string `json:"reference"` // of the transfer; each is booked once per invoice
	Reason    string `json:"reason"`    // recorded in the audit log
}

// BookBankPayment records that what lost disputes took of an invoice was paid by bank, at most what is unpaid. For
// admins.
func (c *Client) BookBankPayment(ctx context.Context, org id.Org, invoice string, b BankPayment) (OrgInvoice, error) {
	return post[OrgInvoice](ctx, c, "/admin/orgs/"+org.String()+"/invoices/"+url.PathEscape(invoice)+"/bank-payments", b)
}

// ApprovedRefund is a refund of an invoice after which hosts keep what they earned.
type ApprovedRefund struct {
	ID    string `json:"id"`
	State string `json:"state" doc:"released"`
}

// ApproveRefund lets hosts keep what they earned in the period of an invoice that was refunded at Stripe (re_…). The
// audit log has the reason. For admins.
func (c *Client) ApproveRefund(ctx context.Context, refund, reason string) error {
	_, err := post[ApprovedRefund](ctx, c, "/admin/refunds/"+url.PathEscape(refund)+"/release",
		map[string]string{"reason": reason})
	return err
}
