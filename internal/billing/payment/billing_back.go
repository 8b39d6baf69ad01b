package payment

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/reconcile"
)

// invoiceOf returns the invoice that a payment paid, and its org; with a zero org it is not the platform's, and note is
// why.
func (p *Payments) invoiceOf(ctx context.Context,
	payment string) (in stripe.Invoice, org id.Org, note string, err error) {
	if p.biller == nil || payment == "" {
		return in, org, notOurs, nil
	}
	pay, err := p.stripe.Payment(ctx, payment)
	if err == nil && pay.Invoice == "" {
		return in, org, notOurs, nil
	}
	if err == nil {
		in, err = p.stripe.Invoice(ctx, pay.Invoice)
	}
	if err != nil {
		note, err = ifMissing(err)
		return in, org, note, err
	}
	org, err = p.invoiced(ctx, in)
	return in, org, notOurs, err
}

// refreshInvoiceDispute books the state of a dispute of an invoice's payment at Stripe, any number of times and in any
// order: what the bank takes back is owed again, and what it returns is not. While the dispute is open, the org's own
// money is set aside as far as there is some, and what hosts earned in the invoice's period is not paid out; if it is
// lost, what was set aside pays what is owed.
func (p *Payments) refreshInvoiceDispute(ctx context.Context, d stripe.Dispute) (note string, err error) {
	in, org, note, err := p.invoiceOf(ctx, d.Payment)
	if err != nil || org.IsZero() {
		return note, err
	}
	if d.Currency != in.Currency {
		return "", fmt.Errorf("dispute %s is in %s, its invoice in %s", d.ID, d.Currency, in.Currency)
	}
	aside := ledger.DisputeHold(org, in.Currency)
	card, err := p.cardOfLost(ctx, d)
	if err != nil {
		return "", err
	}
	if err := p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, _, err := lockDispute(ctx, tx, d.ID); err != nil { // before the ledger
			return err
		}
		accounts, err := bond.Account(ctx, tx.Q, org, in.Currency)
		if err != nil {
			return err
		}
		return p.biller.TakenBack(ctx, tx, org, in.ID, append(accounts, aside), func(ctx context.Context,
			books *ledger.Locked, of tax.Tax) error {
			locked := &lockedDispute{
				Dispute:  d,
				accounts: books,
				ref:      org.String(),
				wallet:   ledger.Wallet(org, in.Currency),
				aside:    aside,
			}
			return p.settleInvoiceDispute(ctx, tx, locked, in, of, card)
		})
	}); err != nil {
		return "", err
	}
	p.collectNow(ctx, org, in.Currency)
	return "", nil
}

// settleInvoiceDispute books the state of a dispute of an invoice's payment. of is the invoice's tax, card the
// fingerprint of the card to block if the dispute is lost.
func (p *Payments) settleInvoiceDispute(ctx context.Context, tx *db.Tx, d *lockedDispute, in stripe.Invoice, of tax.Tax,
	card string) error {
	var err error
	if d.row, d.fresh, err = lockDispute(ctx, tx, d.ID); err != nil {
		return err
	}
	if d.fresh {
		if err := p.openInvoiceDispute(ctx, tx, d, in, of); err != nil {
			return err
		}
	}
	owed := ledger.Receivable(d.wallet.Org, in.Currency)
	for _, m := range d.Moves {
		from, to, n := ledger.StripeClearing(in.Currency), owed, money.Nano(m.Cents)*money.Cent
		if n < 0 {
			from, to, n = to, from, -n
		}
		e := ledger.Entry{Kind: "dispute_funds", Key: reconcile.BalanceKey(m.ID), Memo: d.ID}
		if err := d.post(ctx, e, from, to, n); err != nil {
			return err
		}
	}
	switch {
	case !d.over():
		return nil
	case d.Won:
		return p.win(ctx, tx, d)
	}
	e := d.entry("lost", "what was set aside pays what is owed again")
	if err := d.post(ctx, e, d.aside, owed, d.row.Held); err != nil {
		return err
	}
	return p.closeDispute(ctx, tx, d, "lost", 0, card)
}

// openInvoiceDispute stores a new dispute of an invoice's payment. of is the invoice's tax.
func (p *Payments) openInvoiceDispute(ctx context.Context, tx *db.Tx, d *lockedDispute, in stripe.Invoice,
	of tax.Tax) error {
	amount := money.Nano(d.Cents) * money.Cent
	row := dbq.InsertDisputeParams{
		OrgID:     d.wallet.Org,
		Amount:    amount,
		Currency:  in.Currency,
		PaidAt:    in.PeriodStart,
		Tax:       taxOfPart(in, of, 0, amount, 0),
		InvoiceID: in.ID,
	}
	if err := d.open(ctx, tx, row, amount, "the payment of invoice "+in.Number+" is disputed"); err != nil {
		return err
	}
	d.row.Tax = row.Tax
	return p.opened(ctx, tx, d, notify.Notice{
		Title: "The payment of invoice " + in.Number + " is disputed",
		Body: fmt.Sprintf("The card's bank gives this reason: %s. The disputed amount is owed again and counts against "+
			"your credit limit. Until the dispute is decided, the same amount of your own credit is set aside.",
			strings.ReplaceAll(d.Reason, "_", " ")),
	})
}

// taxOfPart returns how much of the next part of an invoice's payment is tax, if before, and gone of its tax, went back
// already; all but of include tax. Nano-units of whole cents.
func taxOfPart(in stripe.Invoice, of tax.Tax, before, part, gone money.Nano) money.Nano {
	if in.Total <= 0 {
		return 0
	}
	return min(part, taxBack(money.Nano(in.Total)*money.Cent, of.Amount(), before, part, gone))
}

// refreshInvoiceRefund books a refund of an invoice's payment that a person made at Stripe: it is given away, with its
// tax, and not owed again. What hosts earned in the invoice's period is not paid out until an admin approves it.
func (p *Payments) refreshInvoiceRefund(ctx context.Context, r stripe.Refund) (note string, err error) {
	if _, err := stripe.FromCents(r.Cents); err != nil {
		return "", fmt.Errorf("refund %s: %w", r.ID, err)
	}
	in, org, note, err := p.invoiceOf(ctx, r.Payment)
	if err != nil || org.IsZero() {
		if note == notOurs {
			note = "not a refund of this platform"
		}
		return note, err
	}
	if r.Status != stripe.Succeeded && r.Status != stripe.Failed {
		return "not paid yet", nil
	}
	if r.Currency != in.Currency {
		return "", fmt.Errorf("refund %s is in %s, its invoice in %s", r.ID, r.Currency, in.Currency)
	}
	accounts := []ledger.Account{ledger.TaxPayable(in.Currency)}
	return "", p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return p.biller.TakenBack(ctx, tx, org, in.ID, accounts, func(ctx context.Context, books *ledger.Locked,
			of tax.Tax) error {
			return p.settleInvoiceRefund(ctx, tx, invoiceRefund{r, in, org, of, books})
		})
	})
}

// invoiceRefund is a refund of an invoice's payment that was made at Stripe.
type invoiceRefund struct {
	stripe.Refund
	in       stripe.Invoice
	org      id.Org
	of       tax.Tax // the invoice's
	accounts *ledger.Locked
}

// settleInvoiceRefund books the state of a refund of an invoice's payment once: that it left, and that it failed.
func (p *Payments) settleInvoiceRefund(ctx context.Context, tx *db.Tx, r invoiceRefund) error {
	row, fresh, err := lockDispute(ctx, tx, r.ID)
	if err != nil {
		return err
	}
	if fresh {
		if row, err = r.insert(ctx, tx); err != nil {
			return err
		}
		if err := p.bookInvoiceRefund(ctx, tx, r, taxEntry{tax.InvoiceRefund, "refund:" + r.ID, r.ID,
			-(row.Amount - row.Tax), -row.Tax}); err != nil {
			return err
		}
		if err := notifyInvoiceRefund(ctx, tx, r.org, r.in, row); err != nil {
			return err
		}
	}
	if r.Status != stripe.Failed || row.State == "returned" {
		return nil
	}
	if err := p.bookInvoiceRefund(ctx, tx, r, taxEntry{tax.InvoiceRefundReturned, "refund_failed:" + r.ID, r.ID,
		row.Amount - row.Tax, row.Tax}); err != nil {
		return err
	}
	return tx.Q.CloseDispute(ctx, "returned", row.Tax, r.ID)
}

// insert stores the refund, among the disputes: what hosts earned in the invoice's period waits for a decision.
func (r invoiceRefund) insert(ctx context.Context, tx *db.Tx) (dbq.Dispute, error) {
	gone, err := tx.Q.InvoiceRefunded(ctx, r.in.ID)
	if err != nil {
		return dbq.Dispute{}, fmt.Errorf("read refunds of invoice %s: %w", r.in.ID, err)
	}
	row := dbq.Dispute{ID: r.ID, State: disputeOpen, Amount: money.Nano(r.Cents) * money.Cent}
	row.Tax = taxOfPart(r.in, r.of, money.Nano(gone.Amount), row.Amount, money.Nano(gone.Tax))
	if _, err := tx.Q.InsertDispute(ctx, dbq.InsertDisputeParams{
		ID:        r.ID,
		OrgID:     r.org,
		Amount:    row.Amount,
		Currency:  r.in.Currency,
		Reason:    "given back at Stripe",
		PaidAt:    r.in.PeriodStart,
		Tax:       row.Tax,
		InvoiceID: r.in.ID,
		Kind:      kindGiven,
	}); err != nil {
		return row, fmt.Errorf("insert refund %s: %w", r.ID, err)
	}
	return row, nil
}

// bookInvoiceRefund books what a refund of an invoice moved, with its credit note and its line of the tax book.
func (p *Payments) bookInvoiceRefund(ctx context.Context, tx *db.Tx, r invoiceRefund, x taxEntry) error {
	currency, in := r.in.Currency, x.net+x.tax > 0
	net, on := x.net, x.tax
	if !in {
		net, on = -net, -on
	}
	if _, err := r.accounts.Post(ctx, ledger.Entry{
		Kind:      string(x.kind),
		Key:       x.key,
		Ref:       r.org.String(),
		Memo:      r.in.Number + ", " + r.ID,
		Transfers: withTax(ledger.StripeClearing(currency), ledger.Goodwill(currency), in, net, on),
	}); err != nil {
		return err
	}
	if err := p.creditInvoice(ctx, tx, r.org, r.in, r.of, x); err != nil {
		return err
	}
	if r.of.Reason == "" {
		return nil
	}
	return tax.Record(ctx, tx, tax.Line{
		Key:      x.key,
		Org:      r.org,
		Kind:     x.kind,
		Ref:      r.in.ID,
		Net:      x.net,
		Tax:      x.tax,
		Currency: currency,
		Of:       r.of,
	})
}

func notifyInvoiceRefund(ctx context.Context, tx *db.Tx, org id.Org, in stripe.Invoice, row dbq.Dispute) error {
	amount := row.Amount.Plain() + " " + in.Currency
	if _, err := notify.Add(ctx, tx, notify.Notice{
		Org:      org,
		Key:      "refund:" + row.ID,
		Severity: notify.Info,
		Object:   org.String(),
		Title:    amount + " of invoice " + in.Number + " were refunded",
		Body:     "The money is on its way to the card that paid it, and you do not owe it again.",
	}); err != nil {
		return err
	}
	return notify.AddForAdmins(ctx, tx, notify.Notice{
		Key:      "refund:" + row.ID + ":admin",
		Severity: notify.Warn,
		Object:   org.String(),
		Title:    amount + " of invoice " + in.Number + " were refunded at Stripe",
		Body: "Refund " + row.ID + " was made at Stripe. It is booked as given away, and the same amount of what hosts " +
			"earned in the invoice's period is held back. Release that amount on the organisation's page.",
	})
}

// ApproveRefund lets hosts have what they earned in the period of an invoice of which a refund was made at Stripe. Only
// an admin may, with a reason for the audit log. Faults: Forbidden, Invalid, NotFound, Conflict (nothing waits for it).
func (p *Payments) ApproveRefund(ctx context.Context, who account.Principal, refund, reason string,
	once idem.Request) (string, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return refund, idem.Outcome{}, err
	}
	return idem.Once(ctx, p.d, once, func(ctx context.Context, tx *db.Tx) (string, error) {
		if reason = strings.TrimSpace(reason); reason == "" || len(reason) > 500 {
			return refund, fault.InvalidField("reason", "must give the reason in at most 500 bytes; the audit log keeps it")
		}
		row, err := tx.Q.DisputeForUpdate(ctx, refund)
		if err != nil && !db.NoRows(err) {
			return refund, fmt.Errorf("lock refund %s: %w", refund, err)
		}
		if err != nil || row.Kind != kindGiven {
			return refund, fault.New(fault.NotFound, "refund not found")
		}
		if row.State != disputeOpen {
			return refund, fault.New(fault.Conflict, "no earnings wait for this refund any more")
		}
		if err := tx.Q.CloseDispute(ctx, "released", row.Tax, refund); err != nil {
			return refund, fmt.Errorf("close refund %s: %w", refund, err)
		}
		return refund, audit.Record(ctx, tx, who.Event("billing.refund_release", row.OrgID.String(), map[string]any{
			"refund": refund, "invoice": row.InvoiceID, "amount": row.Amount.String(), "reason": reason}))
	})
}
