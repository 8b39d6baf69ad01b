package payment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
)

// Kinds of outbox rows that bill orgs afterwards. What each does when no answer came is said at its function.
const (
	KindSubscribe   = "subscription.create"
	KindUnsubscribe = "subscription.cancel"
	KindUsage       = "meter.event"
	KindClose       = "invoice.close"
	KindCollect     = "invoice.collect"
	KindWriteOff    = "invoice.writeoff" // its ref is the invoice
	kindCard        = "customer.card"
)

// Biller is the noun above that bills orgs afterwards, as it hears of what Stripe did. Each function may be called any
// number of times, on any replica, in any order: what it gets is what Stripe said when asked just before, and older
// news may come after newer. It takes its own locks and books what follows in the transaction it is given.
type Biller struct {
	Subscription func(ctx context.Context, tx *db.Tx, org id.Org, s stripe.Subscription) error
	// Taxable is how many cents of a draft are to be taxed, without tax; ask is false when there is nothing to decide (any
	// more). It is called outside of transactions, just before Invoice.
	Taxable func(ctx context.Context, org id.Org, in stripe.Invoice) (cents int64, ask bool, err error)
	// Invoice of an org's, and what tax it bears where Taxable said to ask. The note says why nothing was to be done.
	Invoice func(ctx context.Context, tx *db.Tx, org id.Org, in stripe.Invoice, t BillTax) (note string, err error)
	// TakenBack: what an invoice was paid with goes back, or comes again. It locks the org's money and the accounts, has
	// book write what follows, and draws its own consequences. of is the tax that the invoice bore.
	TakenBack func(ctx context.Context, tx *db.Tx, org id.Org, invoice string, accounts []ledger.Account,
		book func(ctx context.Context, books *ledger.Locked, of tax.Tax) error) error
	// Refused: Stripe will never do what a row asks.
	Refused func(ctx context.Context, tx *db.Tx, kind, ref string, why *stripe.Error) error
}

// BillTax is the tax on an invoice.
type BillTax struct {
	Cents int64 // without tax, that Of is on
	Of    tax.Tax
}

// Bill gives what Stripe says of subscriptions and invoices to the noun that bills. Call it once, before anything is
// sent.
func (p *Payments) Bill(b Biller) {
	p.biller = &b
	for kind, say := range map[string]func(context.Context, *stripe.Client, Row) (string,
		func(context.Context, *db.Tx) error, error){
		KindSubscribe:   p.sendSubscribe,
		KindUnsubscribe: p.sendUnsubscribe,
		KindUsage:       p.sendUsage,
		KindClose:       p.sendClose,
		KindCollect:     p.sendCollect,
		KindWriteOff:    p.sendWriteOff,
	} {
		p.Register(kind, Sender{Send: say, Refused: func(ctx context.Context, tx *db.Tx, row Row, why *stripe.Error) error {
			return b.Refused(ctx, tx, kind, row.Ref, why)
		}})
	}
	p.Register(kindCard, Sender{
		Send:    p.sendCard,
		Refused: func(context.Context, *db.Tx, Row, *stripe.Error) error { return nil },
	})
	p.Watch("in_", p.RefreshInvoice)
	p.Watch("sub_", p.refreshSubscription)
}

// Subscribe has an org billed by Stripe from now on, and makes its customer if there is none. An org that is billed
// already stays so, and one whose billing was to end with the period goes on: Stripe is asked before anything is made.
// Rows of one org are said in the order in which they were written.
func (p *Payments) Subscribe(ctx context.Context, tx *db.Tx, org id.Org) ([]id.Outbox, error) {
	c, err := tx.Q.BillingContact(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("read contact of %s: %w", org, err)
	}
	out := &outgoing{tx: tx}
	if _, err := p.customer(ctx, out, account.Principal{Org: org, OrgName: c.Name, Email: c.Email}); err != nil {
		return nil, err
	}
	err = out.add(ctx, KindSubscribe, org.String(), "subscribe:"+id.New[id.Outbox]().String(), billingParams{Org: org})
	return out.rows, err
}

// Unsubscribe ends an org's billing: now, with a last invoice, or else when the period ends. One that has ended is no
// error.
func (p *Payments) Unsubscribe(ctx context.Context, tx *db.Tx, org id.Org, subscription string,
	now bool) ([]id.Outbox, error) {
	return p.Queue(ctx, tx, KindUnsubscribe, org.String(), "unsubscribe:"+id.New[id.Outbox]().String(), billingParams{
		Org:          org,
		Subscription: subscription,
		Now:          now,
	})
}

// ReportUsage reports what an org used to Stripe's meter, once under its identifier: Stripe knows that for a day; later
// the minute's sum is asked for, so there may be one event per org and minute. A report that Stripe will not take, such
// as one older than 35 days, goes to Biller.Refused.
func (p *Payments) ReportUsage(ctx context.Context, tx *db.Tx, org id.Org, identifier string, value money.Micro,
	at time.Time) ([]id.Outbox, error) {
	return p.Queue(ctx, tx, KindUsage, org.String(), "meter:"+identifier, usageParams{
		Org:        org,
		Identifier: identifier,
		Value:      value,
		At:         at.UTC(),
	})
}

// BillLine is an amount to be put on an invoice.
type BillLine struct {
	Ref         string `json:"ref"` // by which it is found again; one of its kind on an invoice
	Description string `json:"description"`
	Cents       int64  `json:"cents"` // negative: taken off
}

// CloseInvoice adds lines to a draft and finalises it. Both are one row, because two could overtake each other. Lines
// that come when the invoice is final already are left out: Biller.Invoice sees by their Ref which are there. The first
// call for an invoice stands.
func (p *Payments) CloseInvoice(ctx context.Context, tx *db.Tx, org id.Org, invoice string,
	lines []BillLine) ([]id.Outbox, error) {
	return p.Queue(ctx, tx, KindClose, org.String(), "close:"+invoice, billingParams{
		Org:     org,
		Invoice: invoice,
		Lines:   lines,
	})
}

// CollectInvoice charges the org's default card for an open invoice now. A card that is refused goes to Biller.Refused
// with outcome Declined.
func (p *Payments) CollectInvoice(ctx context.Context, tx *db.Tx, org id.Org, invoice string) ([]id.Outbox, error) {
	return p.Queue(ctx, tx, KindCollect, org.String(), "collect:"+id.New[id.Outbox]().String(), billingParams{
		Org:     org,
		Invoice: invoice,
	})
}

// GiveUpInvoice has Stripe mark an open invoice as uncollectible; the nth time that is decided for an invoice is said
// under a key of its own. One that was paid or voided meanwhile stays so, and Biller.Invoice hears of it as it is.
func (p *Payments) GiveUpInvoice(ctx context.Context, tx *db.Tx, org id.Org, invoice string,
	nth int) ([]id.Outbox, error) {
	key := "writeoff:" + invoice
	if nth > 1 {
		key = fmt.Sprintf("%s:%d", key, nth)
	}
	return p.Queue(ctx, tx, KindWriteOff, invoice, key, billingParams{Org: org, Invoice: invoice})
}

// cardChanged has Stripe charge invoices to the org's default card, which was another one until now (n orgs have it).
// What is said is the default at that time, so that the last change holds in whatever order rows are said.
func (p *Payments) cardChanged(ctx context.Context, tx *db.Tx, org id.Org, n int64) error {
	if n == 0 || p.biller == nil {
		return nil
	}
	_, err := p.Queue(ctx, tx, kindCard, org.String(), "card:"+id.New[id.Outbox]().String(), billingParams{Org: org})
	return err
}

// InvoiceKey returns the ledger key of the entry that books an invoice's payment.
func InvoiceKey(invoice string) string { return "invoice:" + invoice }

// InvoicePaid returns the entry of what an org paid an invoice with through Stripe; any is false when nothing came that
// way: it is not paid, was marked as paid by hand, or was too little to charge.
func InvoicePaid(org id.Org, in stripe.Invoice) (e ledger.Entry, any bool) {
	if in.Status != stripe.InvoicePaid || in.OutOfBand || in.AmountPaid <= 0 {
		return e, false
	}
	return ledger.Entry{
		Kind: "invoice_paid",
		Key:  InvoiceKey(in.ID),
		Ref:  org.String(),
		Memo: in.Number,
		Transfers: []ledger.Transfer{{
			Debit:  ledger.StripeClearing(in.Currency),
			Credit: ledger.Receivable(org, in.Currency),
			Amount: money.Nano(in.AmountPaid) * money.Cent,
		}},
	}, true
}

// RefreshInvoice asks Stripe for an invoice and hands it to the biller.
func (p *Payments) RefreshInvoice(ctx context.Context, invoice string) (note string, err error) {
	in, err := p.stripe.Invoice(ctx, invoice)
	if err != nil {
		return ifMissing(err)
	}
	org, err := p.invoiced(ctx, in)
	if err != nil || org.IsZero() {
		return "not an invoice of this platform", err
	}
	return p.applyInvoice(ctx, org, in)
}

// invoiced returns the org that an invoice of ours bills; zero for one that is not ours, such as one that somebody made
// by hand at Stripe for a customer of ours.
func (p *Payments) invoiced(ctx context.Context, in stripe.Invoice) (id.Org, error) {
	named, err := id.Parse[id.Org](in.Org)
	if err != nil {
		return id.Org{}, nil
	}
	org, err := p.d.Q.OrgOfStripeCustomer(ctx, in.Customer)
	if db.NoRows(err) || err == nil && org != named {
		return id.Org{}, nil
	}
	if err != nil {
		return id.Org{}, fmt.Errorf("read org of %s: %w", in.Customer, err)
	}
	return org, nil
}

func (p *Payments) applyInvoice(ctx context.Context, org id.Org, in stripe.Invoice) (note string, err error) {
	for _, cents := range []int64{in.Total, in.Metered, in.AmountDue, in.AmountPaid} {
		if _, err := fromCents(cents); err != nil {
			return "", fmt.Errorf("invoice %s: %w", in.ID, err)
		}
	}
	t, err := p.billTax(ctx, org, in)
	if err != nil {
		return "", fmt.Errorf("invoice %s: %w", in.ID, err)
	}
	err = p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		note, err = p.biller.Invoice(ctx, tx, org, in, t)
		return err
	})
	return note, err
}

// billTax asks what tax a draft is to bear, unless that is decided or there is nothing to tax.
func (p *Payments) billTax(ctx context.Context, org id.Org, in stripe.Invoice) (BillTax, error) {
	if in.Status != stripe.InvoiceDraft {
		return BillTax{}, nil
	}
	cents, ask, err := p.biller.Taxable(ctx, org, in)
	if err != nil || !ask {
		return BillTax{}, err
	}
	amount, err := fromCents(cents)
	if err != nil {
		return BillTax{}, err
	}
	of, err := p.taxOn(ctx, org, tax.Invoice, amount)
	return BillTax{Cents: cents, Of: of}, err
}

func (p *Payments) refreshSubscription(ctx context.Context, subscription string) (note string, err error) {
	s, err := p.stripe.Subscription(ctx, subscription)
	if err != nil {
		return ifMissing(err)
	}
	org, err := id.Parse[id.Org](s.Org)
	if err != nil {
		return "not a subscription of this platform", nil
	}
	if owner, err := p.d.Q.OrgOfStripeCustomer(ctx, s.Customer); db.NoRows(err) || err == nil && owner != org {
		return "not a subscription of this platform", nil
	} else if err != nil {
		return "", fmt.Errorf("read org of %s: %w", s.Customer, err)
	}
	return "", p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return p.biller.Subscription(ctx, tx, org, s) })
}

// RefreshBilling asks Stripe for an org's subscription and its newest invoices, in case every event was lost, and hands
// them to the biller.
func (p *Payments) RefreshBilling(ctx context.Context, org id.Org, subscription string) error {
	if _, err := p.refreshSubscription(ctx, subscription); err != nil {
		return fmt.Errorf("subscription of %s: %w", org, err)
	}
	all, err := p.stripe.Invoices(ctx, subscription)
	if err != nil {
		return fmt.Errorf("invoices of %s: %w", org, err)
	}
	var errs []error
	for _, in := range all {
		if _, err := p.applyInvoice(ctx, org, in); err != nil {
			errs = append(errs, fmt.Errorf("invoice %s of %s: %w", in.ID, org, err))
		}
	}
	return errors.Join(errs...)
}
