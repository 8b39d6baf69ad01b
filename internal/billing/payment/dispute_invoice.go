package payment

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/reconcile"
)

// refreshInvoice books the state of a dispute of an invoice's payment at Stripe, any number of times and in any
// order: what the bank takes back is owed again, and what it returns is not. While the dispute is open, the org's own
// money is set aside as far as there is some, and what hosts earned in the invoice's period is not paid out; if it is
// lost, what was set aside pays what is owed.
func (ds *Disputes) refreshInvoice(ctx context.Context, d stripe.Dispute) (note string, err error) {
	in, org, note, err := ds.invoices.paidBy(ctx, d.Payment)
	if err != nil || org.IsZero() {
		return note, err
	}
	if d.Currency != in.Currency {
		return "", fmt.Errorf("dispute %s is in %s, its invoice in %s", d.ID, d.Currency, in.Currency)
	}
	aside := ledger.DisputeHold(org, in.Currency)
	card, err := ds.cardOfLost(ctx, d)
	if err != nil {
		return "", err
	}
	if err := ds.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, _, err := lockDispute(ctx, tx, d.ID); err != nil { // before the ledger
			return err
		}
		accounts, err := bond.Account(ctx, tx.Q, org, in.Currency)
		if err != nil {
			return err
		}
		return ds.invoices.biller.TakenBack(ctx, tx, org, in.ID, append(accounts, aside), func(ctx context.Context,
			books *ledger.Locked, of tax.Tax) error {
			locked := &lockedDispute{
				Dispute:  d,
				accounts: books,
				ref:      org.String(),
				wallet:   ledger.Wallet(org, in.Currency),
				aside:    aside,
			}
			return settleInvoiceDispute(ctx, tx, locked, in, of, card)
		})
	}); err != nil {
		return "", err
	}
	ds.claims.collectNow(ctx, org, in.Currency)
	return "", nil
}

// settleInvoiceDispute books the state of a dispute of an invoice's payment. of is the invoice's tax, card the
// fingerprint of the card to block if the dispute is lost.
func settleInvoiceDispute(ctx context.Context, tx *db.Tx, d *lockedDispute, in stripe.Invoice, of tax.Tax,
	card string) error {
	var err error
	if d.row, d.fresh, err = lockDispute(ctx, tx, d.ID); err != nil {
		return err
	}
	if d.fresh {
		if err := openInvoiceDispute(ctx, tx, d, in, of); err != nil {
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
		return d.win(ctx, tx)
	}
	e := d.entry("lost", "what was set aside pays what is owed again")
	if err := d.post(ctx, e, d.aside, owed, d.row.Held); err != nil {
		return err
	}
	return d.close(ctx, tx, "lost", 0, card)
}

// openInvoiceDispute stores a new dispute of an invoice's payment. of is the invoice's tax.
func openInvoiceDispute(ctx context.Context, tx *db.Tx, d *lockedDispute, in stripe.Invoice,
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
	return d.opened(ctx, tx, notify.Notice{
		Title: "The payment of invoice " + in.Number + " is disputed",
		Body: fmt.Sprintf("The card's bank gives this reason: %s. The disputed amount is owed again and counts against "+
			"your credit limit. Until the dispute is decided, the same amount of your own credit is set aside.",
			strings.ReplaceAll(d.Reason, "_", " ")),
	})
}
