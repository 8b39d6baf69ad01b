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
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/outbox"
	"github.com/musterhq/muster/internal/stripe/reconcile"
)

// Kinds of outbox rows that bill orgs afterwards. What each does when no answer came is documented at its function.
const (
	KindSubscribe   = "subscription.create"
	KindUnsubscribe = "subscription.cancel"
	KindUsage       = "meter.event"
	KindClose       = "invoice.close"
	KindCollect     = "invoice.collect"
	KindWriteOff    = "invoice.writeoff" // its ref is the invoice
	kindCard        = "customer.card"
)

// Biller is package postpaid, as it is notified of what Stripe did. Each function may be called any number of times, on
// any replica, in any order: it gets the state that Stripe just returned, and an older state may come after a newer
// one. It takes its own locks and books what follows in the transaction it is given.
type Biller struct {
	Subscription func(ctx context.Context, tx *db.Tx, org id.Org, s stripe.Subscription) error
	// Taxable returns how many cents of a draft are to be taxed, without tax; ask is false when there is nothing to
	// decide (any more). It is called outside of transactions, just before Invoice.
	Taxable func(ctx context.Context, org id.Org, in stripe.Invoice) (cents int64, ask bool, err error)
	// Invoice applies the state of an org's invoice; t is the tax that it bears if Taxable returned ask. note is why
	// nothing was to be done.
	Invoice func(ctx context.Context, tx *db.Tx, org id.Org, in stripe.Invoice, t BillTax) (note string, err error)
	// TakenBack locks the org's money and the accounts, calls book to book that what an invoice was paid with goes back,
	// or arrives again, and applies the consequences. The tax that book gets is the invoice's.
	TakenBack func(ctx context.Context, tx *db.Tx, org id.Org, invoice string, accounts []ledger.Account,
		book func(ctx context.Context, books *ledger.Locked, of tax.Tax) error) error
	// Refused applies that Stripe will never do what a row requests.
	Refused func(ctx context.Context, tx *db.Tx, kind, ref string, why *stripe.Error) error
}

// Invoices bills orgs afterwards: it sends what package postpaid decides to Stripe, and passes what Stripe did back.
// What queues a row is a method, too, because Stripe gets the row only after Bill.
type Invoices struct {
	*core
	customers *customers
	taxes     *Taxes

	biller *Biller // nil: orgs are not billed afterwards
}

// BillTax is the tax on an invoice.
type BillTax struct {
	Cents int64 // without tax, that Of is on
	Of    tax.Tax
}

// Bill sets the package that receives the states of subscriptions and invoices. Call it once, before anything is sent.
func (i *Invoices) Bill(b Biller) {
	i.biller = &b
	const slow = 4 * time.Minute // up to seven calls of 30 s
	all := billed{i}
	for _, k := range []struct {
		name   string
		lease  time.Duration
		sender outbox.Sender
	}{
		{KindSubscribe, slow, subscribeSender{all}},
		{KindUnsubscribe, 0, unsubscribeSender{all}},
		{KindUsage, slow, usageSender{all}},
		{KindClose, slow, closeSender{all}},
		{KindCollect, 0, collectSender{all}},
		{KindWriteOff, 0, writeOffSender{all}},
		{kindCard, 0, invoiceCardSender{all}},
	} {
		i.out.Register(outbox.Kind{Name: k.name, Lease: k.lease}, k.sender)
	}
	i.in.Handle("in_", i.Refresh)
	i.in.Handle("sub_", i.refreshSubscription)
}

// Subscribe queues that Stripe bills an org from now on, and its customer if there is none. An org that is billed
// already stays so, and one whose billing was to end with the period is billed on: the state at Stripe is read before
// anything is created. Rows of one org are sent in the order in which they were written.
func (i *Invoices) Subscribe(ctx context.Context, tx *db.Tx, org id.Org) ([]id.Outbox, error) {
	c, err := tx.Q.BillingContact(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("read contact of %s: %w", org, err)
	}
	out := &outbox.Batch{Tx: tx}
	if _, err := ensureCustomer(ctx, out, account.Principal{Org: org, OrgName: c.Name, Email: c.Email}); err != nil {
		return nil, err
	}
	err = out.Add(ctx, KindSubscribe, org.String(), "subscribe:"+id.New[id.Outbox]().String(), billingParams{Org: org})
	return out.Rows, err
}

// Unsubscribe ends an org's billing: now, with a last invoice, or else when the period ends. One that has ended is no
// error.
func (i *Invoices) Unsubscribe(ctx context.Context, tx *db.Tx, org id.Org, subscription string,
	now bool) ([]id.Outbox, error) {
	return outbox.Add(ctx, tx, KindUnsubscribe, org.String(), "unsubscribe:"+id.New[id.Outbox]().String(), billingParams{
		Org:          org,
		Subscription: subscription,
		Now:          now,
	})
}

// ReportUsage queues a report of what an org used to Stripe's meter, once under its identifier. Stripe remembers that
// for a day; later the minute's sum is read, so there may be one event per org and minute. A report that Stripe
// refuses, such as one older than 35 days, goes to Biller.Refused.
func (i *Invoices) ReportUsage(ctx context.Context, tx *db.Tx, org id.Org, identifier string, value money.Micro,
	at time.Time) ([]id.Outbox, error) {
	return outbox.Add(ctx, tx, KindUsage, org.String(), "meter:"+identifier, usageParams{
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

// Close queues lines of a draft and its finalising. Both are one row, because two could overtake each other.
// Lines that arrive when the invoice is final already are left out: Biller.Invoice finds by their Ref which exist. The
// first call for an invoice stands.
func (i *Invoices) Close(ctx context.Context, tx *db.Tx, org id.Org, invoice string,
	lines []BillLine) ([]id.Outbox, error) {
	return outbox.Add(ctx, tx, KindClose, org.String(), "close:"+invoice, billingParams{
		Org:     org,
		Invoice: invoice,
		Lines:   lines,
	})
}

// Collect charges the org's default card for an open invoice now. A card that is refused goes to Biller.Refused
// with outcome Declined.
func (i *Invoices) Collect(ctx context.Context, tx *db.Tx, org id.Org, invoice string) ([]id.Outbox, error) {
	return outbox.Add(ctx, tx, KindCollect, org.String(), "collect:"+id.New[id.Outbox]().String(), billingParams{
		Org:     org,
		Invoice: invoice,
	})
}

// GiveUp queues that Stripe marks an open invoice as uncollectible; the nth decision for an invoice has its own
// key. An invoice that was paid or voided meanwhile stays so, and Biller.Invoice gets it as it is.
func (i *Invoices) GiveUp(ctx context.Context, tx *db.Tx, org id.Org, invoice string,
	nth int) ([]id.Outbox, error) {
	key := "writeoff:" + invoice
	if nth > 1 {
		key = fmt.Sprintf("%s:%d", key, nth)
	}
	return outbox.Add(ctx, tx, KindWriteOff, invoice, key, billingParams{Org: org, Invoice: invoice})
}

// cardChanged queues that Stripe charges invoices to the org's default card, which was another one until now (n orgs
// have it). What is sent is the default at that time, so that the last change holds in whatever order rows are sent.
func (i *Invoices) cardChanged(ctx context.Context, tx *db.Tx, org id.Org, n int64) error {
	if n == 0 || i.biller == nil {
		return nil
	}
	_, err := outbox.Add(ctx, tx, kindCard, org.String(), "card:"+id.New[id.Outbox]().String(), billingParams{Org: org})
	return err
}

// InvoicePaid returns the entry of what an org paid an invoice with through Stripe; any is false when nothing came that
// way: it is not paid, was marked as paid by hand, or was too little to charge.
func InvoicePaid(org id.Org, in stripe.Invoice) (e ledger.Entry, any bool) {
	if in.Status != stripe.InvoicePaid || in.OutOfBand || in.AmountPaid <= 0 {
		return e, false
	}
	return ledger.Entry{
		Kind: "invoice_paid",
		Key:  reconcile.InvoiceKey(in.ID),
		Ref:  org.String(),
		Memo: in.Number,
		Transfers: []ledger.Transfer{{
			Debit:  ledger.StripeClearing(in.Currency),
			Credit: ledger.Receivable(org, in.Currency),
			Amount: money.Nano(in.AmountPaid) * money.Cent,
		}},
	}, true
}

// Refresh reads an invoice from Stripe and passes it to the biller.
func (i *Invoices) Refresh(ctx context.Context, invoice string) (note string, err error) {
	in, err := i.stripe.Invoice(ctx, invoice)
	if err != nil {
		return ifMissing(err)
	}
	org, err := i.invoiced(ctx, in)
	if err != nil || org.IsZero() {
		return "not an invoice of this platform", err
	}
	return i.apply(ctx, org, in)
}

// invoiced returns the org that an invoice bills; zero for one that the platform did not create, such as one that a
// person made at Stripe for one of its customers.
func (i *Invoices) invoiced(ctx context.Context, in stripe.Invoice) (id.Org, error) {
	named, err := id.Parse[id.Org](in.Org)
	if err != nil {
		return id.Org{}, nil
	}
	org, err := i.d.Q.OrgOfStripeCustomer(ctx, in.Customer)
	if db.NoRows(err) || err == nil && org != named {
		return id.Org{}, nil
	}
	if err != nil {
		return id.Org{}, fmt.Errorf("read org of %s: %w", in.Customer, err)
	}
	return org, nil
}

// paidBy returns the invoice that a payment paid, and its org; with a zero org it is not the platform's, and note is
// why.
func (i *Invoices) paidBy(ctx context.Context,
	payment string) (in stripe.Invoice, org id.Org, note string, err error) {
	if i.biller == nil || payment == "" {
		return in, org, notOurs, nil
	}
	pay, err := i.stripe.Payment(ctx, payment)
	if err == nil && pay.Invoice == "" {
		return in, org, notOurs, nil
	}
	if err == nil {
		in, err = i.stripe.Invoice(ctx, pay.Invoice)
	}
	if err != nil {
		note, err = ifMissing(err)
		return in, org, note, err
	}
	org, err = i.invoiced(ctx, in)
	return in, org, notOurs, err
}

func (i *Invoices) apply(ctx context.Context, org id.Org, in stripe.Invoice) (note string, err error) {
	for _, cents := range []int64{in.Total, in.Metered, in.AmountDue, in.AmountPaid} {
		if _, err := stripe.FromCents(cents); err != nil {
			return "", fmt.Errorf("invoice %s: %w", in.ID, err)
		}
	}
	t, err := i.billTax(ctx, org, in)
	if err != nil {
		return "", fmt.Errorf("invoice %s: %w", in.ID, err)
	}
	err = i.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		note, err = i.biller.Invoice(ctx, tx, org, in, t)
		return err
	})
	return note, err
}

// billTax determines the tax of a draft, unless that is decided or there is nothing to tax.
func (i *Invoices) billTax(ctx context.Context, org id.Org, in stripe.Invoice) (BillTax, error) {
	if in.Status != stripe.InvoiceDraft {
		return BillTax{}, nil
	}
	cents, ask, err := i.biller.Taxable(ctx, org, in)
	if err != nil || !ask {
		return BillTax{}, err
	}
	amount, err := stripe.FromCents(cents)
	if err != nil {
		return BillTax{}, err
	}
	of, err := i.taxes.on(ctx, org, tax.Invoice, amount)
	return BillTax{Cents: cents, Of: of}, err
}

func (i *Invoices) refreshSubscription(ctx context.Context, subscription string) (note string, err error) {
	s, err := i.stripe.Subscription(ctx, subscription)
	if err != nil {
		return ifMissing(err)
	}
	org, err := id.Parse[id.Org](s.Org)
	if err != nil {
		return "not a subscription of this platform", nil
	}
	if owner, err := i.d.Q.OrgOfStripeCustomer(ctx, s.Customer); db.NoRows(err) || err == nil && owner != org {
		return "not a subscription of this platform", nil
	} else if err != nil {
		return "", fmt.Errorf("read org of %s: %w", s.Customer, err)
	}
	return "", i.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return i.biller.Subscription(ctx, tx, org, s) })
}

// RefreshBilling reads an org's subscription and its newest invoices from Stripe, in case every event was lost, and
// passes them to the biller.
func (i *Invoices) RefreshBilling(ctx context.Context, org id.Org, subscription string) error {
	if _, err := i.refreshSubscription(ctx, subscription); err != nil {
		return fmt.Errorf("subscription of %s: %w", org, err)
	}
	all, err := i.stripe.Invoices(ctx, subscription)
	if err != nil {
		return fmt.Errorf("invoices of %s: %w", org, err)
	}
	var errs []error
	for _, in := range all {
		if _, err := i.apply(ctx, org, in); err != nil {
			errs = append(errs, fmt.Errorf("invoice %s of %s: %w", in.ID, org, err))
		}
	}
	return errors.Join(errs...)
}

// meterErrors notifies admins, once a day and meter, that Stripe refused reports of usage which it had accepted first:
// meter events are validated later. Bills are correct nevertheless, because each invoice is made equal to the ledger;
// what customers see of their usage at Stripe is not.
func (i *Invoices) meterErrors(ctx context.Context, meter string) (note string, err error) {
	return "", i.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		return notify.AddForAdmins(ctx, tx, notify.Notice{
			Key:      "meter_errors:" + meter + ":" + now.Format("2006-01-02"),
			Severity: notify.Warn,
			Title:    "Stripe rejected reports of usage",
			Body: fmt.Sprintf("Stripe accepted reports of usage for the meter %s and rejected them later. Invoices are "+
				"correct nevertheless, because each is made equal to the ledger. Customers see too little usage at Stripe. "+
				"The meter's page in Stripe's dashboard lists the errors.", meter),
		})
	})
}
