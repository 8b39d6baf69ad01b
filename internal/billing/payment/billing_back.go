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

// invoiceOf is the invoice that a payment paid, and its org; a zero org says that it is none of ours, and why.
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

// refreshInvoiceDispute books what Stripe says of a dispute of an invoice's payment, any number of times and in any
// order: what the bank takes back is owed again, what it gives again is not. While it is open, the org's own money is
// set aside as far as there is some, and what hosts earned in the invoice's period is not paid out; lost, what was set
// aside pays what is owed.
func (p *Payments) refreshInvoiceDispute(ctx context.Context, d stripe.Dispute) (note string, err error) {
	in, org, note, err := p.invoiceOf(ctx, d.Payment)
	if err != nil || org.IsZero() {
		return note, err
	}
	if d.Currency != in.Currency {
		return "", fmt.Errorf("dispute %s is in %s, its invoice in %s", d.ID, d.Currency, in.Currency)
	}
	accounts := []ledger.Account{ledger.DisputeHold(org, in.Currency)}
	card, err := p.cardOfLost(ctx, d)
	if err != nil {
		return "", err
	}
	if err := p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		// Disputes are locked before the books.
		if _, err := tx.Q.DisputeForUpdate(ctx, d.ID); err != nil && !db.NoRows(err) {
			return fmt.Errorf("dispute %s: %w", d.ID, err)
		}
		return p.biller.TakenBack(ctx, tx, org, in.ID, accounts, func(ctx context.Context, books *ledger.Locked,
			of tax.Tax) error {
			return p.settleInvoiceDispute(ctx, tx, books, org, in, d, of, card)
		})
	}); err != nil {
		return "", err
	}
	p.collectNow(ctx, org, in.Currency)
	return "", nil
}

func (p *Payments) settleInvoiceDispute(ctx context.Context, tx *db.Tx, books *ledger.Locked, org id.Org,
	in stripe.Invoice, d stripe.Dispute, of tax.Tax, card string) error {
	wallet, aside, owed := ledger.Wallet(org, in.Currency), ledger.DisputeHold(org, in.Currency),
		ledger.Receivable(org, in.Currency)
	row, err := tx.Q.DisputeForUpdate(ctx, d.ID)
	fresh := db.NoRows(err)
	if err != nil && !fresh {
		return fmt.Errorf("dispute %s: %w", d.ID, err)
	}
	post := func(kind, key, memo string, debit, credit ledger.Account, amount money.Nano) error {
		if amount == 0 {
			return nil
		}
		_, err := books.Post(ctx, ledger.Entry{
			Kind:      kind,
			Key:       key,
			Ref:       org.String(),
			Memo:      memo,
			Transfers: []ledger.Transfer{{Debit: debit, Credit: credit, Amount: amount}},
		})
		return err
	}
	if fresh {
		amount := money.Nano(d.Cents) * money.Cent
		row = dbq.Dispute{
			ID:       d.ID,
			OrgID:    org,
			Currency: in.Currency,
			State:    disputeOpen,
			Held:     max(0, min(amount, books.Balance(wallet)-books.Reserved(wallet))),
			Tax:      taxOfPart(in, of, 0, amount, 0),
		}
		if _, err := tx.Q.InsertDispute(ctx, dbq.InsertDisputeParams{
			ID:        d.ID,
			OrgID:     org,
			Amount:    amount,
			Held:      row.Held,
			Currency:  in.Currency,
			Reason:    d.Reason,
			PaidAt:    in.PeriodStart,
			Tax:       row.Tax,
			InvoiceID: in.ID,
			Kind:      kindDispute,
		}); err != nil {
			return fmt.Errorf("insert dispute: %w", err)
		}
		if err := post("dispute", "dispute:"+d.ID+":opened", "the payment of invoice "+in.Number+" is disputed", wallet,
			aside, row.Held); err != nil {
			return err
		}
		if err := p.notifyInvoiceDispute(ctx, tx, org, in, d); err != nil {
			return err
		}
		if err := p.reserve(ctx, tx, books, wallet); err != nil {
			return err
		}
		if err := p.updateStanding(ctx, tx, org); err != nil {
			return err
		}
	}
	for _, m := range d.Moves {
		n := money.Nano(m.Cents) * money.Cent
		from, to := ledger.StripeClearing(in.Currency), owed
		if n < 0 {
			from, to, n = to, from, -n
		}
		if err := post("dispute_funds", balanceKey(m.ID), d.ID, from, to, n); err != nil {
			return err
		}
	}
	switch {
	case d.Open || row.State != disputeOpen:
		return nil
	case d.Won:
		if err := post("dispute_won", "dispute:"+d.ID+":won", "the dispute was decided for you", aside, wallet,
			row.Held); err != nil {
			return err
		}
		return p.closeDispute(ctx, tx, books, row, "won", 0, "")
	}
	if err := post("dispute_lost", "dispute:"+d.ID+":lost", "what was set aside pays what is owed again", aside, owed,
		row.Held); err != nil {
		return err
	}
	return p.closeDispute(ctx, tx, books, row, "lost", 0, card)
}

// taxOfPart is how much of the next part of an invoice's payment is tax, when before and gone of it went back already;
// all but of with tax. Nano-units of whole cents.
func taxOfPart(in stripe.Invoice, of tax.Tax, before, part, gone money.Nano) money.Nano {
	if in.Total <= 0 {
		return 0
	}
	return min(part, taxBack(money.Nano(in.Total)*money.Cent, of.Amount(), before, part, gone))
}

// notifyInvoiceDispute tells the org, and stops charging a card whose owner takes payments back.
func (p *Payments) notifyInvoiceDispute(ctx context.Context, tx *db.Tx, org id.Org, in stripe.Invoice,
	d stripe.Dispute) error {
	if err := p.stopAuto(ctx, tx, org, "A payment is disputed."); err != nil {
		return err
	}
	_, err := notify.Add(ctx, tx, notify.Notice{
		Org:      org,
		Key:      "dispute:" + d.ID,
		Severity: notify.Bad,
		Object:   org.String(),
		Title:    "The payment of invoice " + in.Number + " is disputed",
		Body: fmt.Sprintf("The card's bank says: %s. What it takes back is owed again, and counts against your credit "+
			"limit. Until it is decided, that much of your own credit is set aside.",
			strings.ReplaceAll(d.Reason, "_", " ")),
	})
	return err
}

// refreshInvoiceRefund books a refund of an invoice's payment that somebody made at Stripe: it is given away, with its
// tax, and not owed again. What hosts earned in the invoice's period is not paid out until a platform operator lets
// them have it.
func (p *Payments) refreshInvoiceRefund(ctx context.Context, r stripe.Refund) (note string, err error) {
	if _, err := fromCents(r.Cents); err != nil {
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
			return p.settleInvoiceRefund(ctx, tx, books, org, in, r, of)
		})
	})
}

func (p *Payments) settleInvoiceRefund(ctx context.Context, tx *db.Tx, books *ledger.Locked, org id.Org,
	in stripe.Invoice, r stripe.Refund, of tax.Tax) error {
	row, err := tx.Q.DisputeForUpdate(ctx, r.ID)
	fresh := db.NoRows(err)
	if err != nil && !fresh {
		return fmt.Errorf("refund %s: %w", r.ID, err)
	}
	book := func(kind tax.Kind, key string, sign money.Nano) error {
		ts := withTax(ledger.StripeClearing(in.Currency), ledger.Goodwill(in.Currency), sign > 0, row.Amount-row.Tax, row.Tax)
		if _, err := books.Post(ctx, ledger.Entry{
			Kind:      string(kind),
			Key:       key,
			Ref:       org.String(),
			Memo:      in.Number + ", " + r.ID,
			Transfers: ts,
		}); err != nil {
			return err
		}
		if err := p.creditInvoice(ctx, tx, org, in, r.ID, kind, key, sign*(row.Amount-row.Tax), sign*row.Tax,
			of); err != nil {
			return err
		}
		if of.Reason == "" {
			return nil
		}
		return tax.Record(ctx, tx, tax.Line{
			Key:      key,
			Org:      org,
			Kind:     kind,
			Ref:      in.ID,
			Net:      sign * (row.Amount - row.Tax),
			Tax:      sign * row.Tax,
			Currency: in.Currency,
			Of:       of,
		})
	}
	if fresh {
		gone, err := tx.Q.InvoiceRefunded(ctx, in.ID)
		if err != nil {
			return fmt.Errorf("refunds of %s: %w", in.ID, err)
		}
		row = dbq.Dispute{ID: r.ID, State: disputeOpen, Amount: money.Nano(r.Cents) * money.Cent}
		row.Tax = taxOfPart(in, of, money.Nano(gone.Amount), row.Amount, money.Nano(gone.Tax))
		if _, err := tx.Q.InsertDispute(ctx, dbq.InsertDisputeParams{
			ID:        r.ID,
			OrgID:     org,
			Amount:    row.Amount,
			Currency:  in.Currency,
			Reason:    "given back at Stripe",
			PaidAt:    in.PeriodStart,
			Tax:       row.Tax,
			InvoiceID: in.ID,
			Kind:      kindGiven,
		}); err != nil {
			return fmt.Errorf("insert refund: %w", err)
		}
		if err := book(tax.InvoiceRefund, "refund:"+r.ID, -1); err != nil {
			return err
		}
		if err := notifyInvoiceRefund(ctx, tx, org, in, row); err != nil {
			return err
		}
	}
	if r.Status != stripe.Failed || row.State == "returned" {
		return nil
	}
	if err := book(tax.InvoiceRefundReturned, "refund_failed:"+r.ID, +1); err != nil {
		return err
	}
	return tx.Q.CloseDispute(ctx, "returned", row.Tax, r.ID)
}

func notifyInvoiceRefund(ctx context.Context, tx *db.Tx, org id.Org, in stripe.Invoice, row dbq.Dispute) error {
	amount := row.Amount.Plain() + " " + in.Currency
	if _, err := notify.Add(ctx, tx, notify.Notice{
		Org:      org,
		Key:      "refund:" + row.ID,
		Severity: notify.Info,
		Object:   org.String(),
		Title:    amount + " of invoice " + in.Number + " are given back",
		Body:     "They are on their way to the card that paid it, and are not owed again.",
	}); err != nil {
		return err
	}
	return notifyAdmins(ctx, tx, notify.Notice{
		Key:      "refund:" + row.ID + ":admin",
		Severity: notify.Warn,
		Object:   org.String(),
		Title:    amount + " of invoice " + in.Number + " were given back at Stripe",
		Body: "Refund " + row.ID + " was made at Stripe. It is booked as given away, and as much of what hosts earned " +
			"in the invoice's period is held back: on the organisation's page, let them have it.",
	})
}

// ApproveRefund lets hosts have what they earned in the period of an invoice of which a refund was made at Stripe. Only
// a platform operator may, with a reason for the audit trail. Faults: Forbidden, Invalid, NotFound, Conflict (nothing
// waits for it).
func (p *Payments) ApproveRefund(ctx context.Context, who account.Principal, refund, reason string,
	once idem.Request) (string, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return refund, idem.Outcome{}, err
	}
	return idem.Once(ctx, p.d, once, func(ctx context.Context, tx *db.Tx) (string, error) {
		if reason = strings.TrimSpace(reason); reason == "" || len(reason) > 500 {
			return refund, fault.InvalidField("reason", "says why, in at most 500 bytes: the audit trail keeps it")
		}
		row, err := tx.Q.DisputeForUpdate(ctx, refund)
		if err != nil && !db.NoRows(err) {
			return refund, fmt.Errorf("refund %s: %w", refund, err)
		}
		if err != nil || row.Kind != kindGiven {
			return refund, fault.New(fault.NotFound, "there is no such refund")
		}
		if row.State != disputeOpen {
			return refund, fault.New(fault.Conflict, "nothing waits for this refund any more")
		}
		if err := tx.Q.CloseDispute(ctx, "released", row.Tax, refund); err != nil {
			return refund, fmt.Errorf("refund %s: %w", refund, err)
		}
		return refund, audit.Record(ctx, tx, who.Event("billing.refund_release", row.OrgID.String(), map[string]any{
			"refund": refund, "invoice": row.InvoiceID, "amount": row.Amount.String(), "reason": reason}))
	})
}
