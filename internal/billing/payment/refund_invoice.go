package payment

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
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
)

// refreshInvoice books a refund of an invoice's payment that a person made at Stripe: it is given away, with its
// tax, and not owed again. What hosts earned in the invoice's period is not paid out until an admin approves it.
func (rs *Refunds) refreshInvoice(ctx context.Context, r stripe.Refund) (note string, err error) {
	if _, err := stripe.FromCents(r.Cents); err != nil {
		return "", fmt.Errorf("refund %s: %w", r.ID, err)
	}
	in, org, note, err := rs.invoices.paidBy(ctx, r.Payment)
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
	return "", rs.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return rs.invoices.biller.TakenBack(ctx, tx, org, in.ID, accounts, func(ctx context.Context, books *ledger.Locked,
			of tax.Tax) error {
			return rs.settleInvoice(ctx, tx, invoiceRefund{r, in, org, of, books})
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

// settleInvoice books the state of a refund of an invoice's payment once: that it left, and that it failed.
func (rs *Refunds) settleInvoice(ctx context.Context, tx *db.Tx, r invoiceRefund) error {
	row, fresh, err := lockDispute(ctx, tx, r.ID)
	if err != nil {
		return err
	}
	if fresh {
		if row, err = r.insert(ctx, tx); err != nil {
			return err
		}
		if err := rs.bookInvoice(ctx, tx, r, taxEntry{tax.InvoiceRefund, "refund:" + r.ID, r.ID,
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
	if err := rs.bookInvoice(ctx, tx, r, taxEntry{tax.InvoiceRefundReturned, "refund_failed:" + r.ID, r.ID,
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

// bookInvoice books what a refund of an invoice moved, with its credit note and its line of the tax book.
func (rs *Refunds) bookInvoice(ctx context.Context, tx *db.Tx, r invoiceRefund, x taxEntry) error {
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
	if err := rs.receipts.creditInvoice(ctx, tx, r.org, r.in, r.of, x); err != nil {
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

// Approve lets hosts have what they earned in the period of an invoice of which a refund was made at Stripe. Only
// an admin may, with a reason for the audit log. Faults: Forbidden, Invalid, NotFound, Conflict (nothing waits for it).
func (rs *Refunds) Approve(ctx context.Context, who account.Principal, refund, reason string,
	once idem.Request) (string, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return refund, idem.Outcome{}, err
	}
	return idem.Once(ctx, rs.d, once, func(ctx context.Context, tx *db.Tx) (string, error) {
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
