package payment

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// settle books the state of a top-up's payment at Stripe. last reports that a refusal is the end: on a checkout page
// the payer may try another card. Any number of calls, in any order, book a success once; a success always counts, even
// for a top-up that was given up before.
func (ts *TopUps) settle(ctx context.Context, tx *db.Tx, topup id.TopUp, pay stripe.Payment, last bool) error {
	t, err := tx.Q.TopupForUpdate(ctx, topup)
	if err != nil {
		return fmt.Errorf("lock top-up %s: %w", topup, err)
	}
	switch {
	case t.State == string(Succeeded):
		if pay.Receipt == "" || pay.Receipt == t.ReceiptURL {
			return nil
		}
		return tx.Q.SetTopupReceipt(ctx, pay.Receipt, topup) // the response to the payment did not have it
	case pay.Status == stripe.Succeeded:
		return ts.succeed(ctx, tx, t, pay)
	case pay.Status == stripe.Failed && last:
		return failTopUp(ctx, tx, topup, Failed, pay.Failure, pay.ID)
	case pay.Status == stripe.Canceled:
		return failTopUp(ctx, tx, topup, Canceled, pay.Failure, pay.ID)
	}
	if err := tx.Q.SetTopupPayment(ctx, topup, &pay.ID); err != nil { // still waiting
		return fmt.Errorf("set payment of top-up %s: %w", topup, err)
	}
	return tx.Q.SetTopupAction(ctx, pay.ActionURL, topup)
}

// succeed books a top-up whose payment succeeded, issues its receipt and keeps the card.
func (ts *TopUps) succeed(ctx context.Context, tx *db.Tx, t dbq.Topup, pay stripe.Payment) error {
	if err := tx.Q.SetTopupPayment(ctx, t.ID, &pay.ID); err != nil {
		return fmt.Errorf("set payment of top-up %s: %w", t.ID, err)
	}
	if pay.Cents != int64((t.Amount+t.Tax)/money.Cent) || pay.Currency != t.Currency {
		return ts.setAside(ctx, tx, t.ID, pay)
	}
	blocked, err := ts.book(ctx, tx, t, pay)
	if err != nil {
		return err
	}
	if err := tx.Q.SettleTopup(ctx, string(Succeeded), "", t.ID); err != nil {
		return fmt.Errorf("settle top-up %s: %w", t.ID, err)
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	if err := ts.receipts.issue(ctx, tx, t, pay.ID, now); err != nil {
		return err
	}
	if t.Automatic {
		if err := notifyAdded(ctx, tx, t); err != nil {
			return err
		}
	}
	if pay.Receipt != "" {
		if err := tx.Q.SetTopupReceipt(ctx, pay.Receipt, t.ID); err != nil {
			return fmt.Errorf("set receipt of top-up %s: %w", t.ID, err)
		}
	}
	tx.AfterCommit(func() { ts.claims.collectNow(context.WithoutCancel(ctx), t.OrgID, t.Currency) })
	if blocked {
		return nil // the card is not kept
	}
	return ts.cards.save(ctx, tx, t.OrgID, pay.Card)
}

// notifyAdded notifies the org of credit that auto top-up added.
func notifyAdded(ctx context.Context, tx *db.Tx, t dbq.Topup) error {
	_, err := notify.Add(ctx, tx, notify.Notice{
		Org:      t.OrgID,
		Key:      noticeKey(t.ID),
		Severity: notify.Info,
		Object:   t.ID.String(),
		Title:    fmt.Sprintf("%s %s were added by auto top-up", t.Amount.Plain(), t.Currency),
		Body:     "The payment has a receipt.",
	})
	return err
}

// book credits a payment. One by a blocked card is refunded in the same transaction, so that nothing of it can be
// spent.
func (ts *TopUps) book(ctx context.Context, tx *db.Tx, t dbq.Topup,
	pay stripe.Payment) (blocked bool, err error) {
	if pay.Fingerprint != "" {
		if blocked, err = tx.Q.CardIsBlocked(ctx, pay.Fingerprint); err != nil {
			return false, fmt.Errorf("look for the card of top-up %s: %w", t.ID, err)
		}
	}
	wallet := ledger.Wallet(t.OrgID, t.Currency)
	entries := []ledger.Entry{{
		Kind: "topup", Key: ledgerKey(pay.ID), Ref: t.ID.String(), Memo: "card payment",
		Transfers: withTax(ledger.StripeClearing(t.Currency), wallet, true, t.Amount, t.Tax),
	}}
	back := id.New[id.Refund]()
	if blocked {
		entries = append(entries, refundEntry(back, wallet, "paid with a blocked card", t.Amount, t.Tax))
	}
	booked, err := ledger.PostAll(ctx, tx, entries)
	if err != nil {
		return blocked, err
	}
	if blocked && !booked[0] {
		return true, fmt.Errorf("payment %s of top-up %s is in the ledger already", pay.ID, t.ID)
	}
	if booked[0] {
		paid := taxEntry{tax.TopUp, ledgerKey(pay.ID), t.ID.String(), t.Amount, t.Tax}
		if err := ts.taxes.record(ctx, tx, t, paid); err != nil {
			return blocked, err
		}
	}
	if !blocked {
		return false, nil
	}
	return true, ts.returnBlocked(ctx, tx, t, pay, back)
}

// returnBlocked sends a payment by a blocked card back, whose refund is booked, and notifies the org.
func (ts *TopUps) returnBlocked(ctx context.Context, tx *db.Tx, t dbq.Topup, pay stripe.Payment,
	back id.Refund) error {
	out := &outbox.Batch{Tx: tx}
	if err := ts.refunds.queue(ctx, out, t, back, refundOf{pay.ID, t.UserID, t.Amount, t.Tax}); err != nil {
		return err
	}
	_, err := notify.Add(ctx, tx, notify.Notice{
		Org:      t.OrgID,
		Key:      "card_blocked:" + t.ID.String(),
		Severity: notify.Bad,
		Object:   t.ID.String(),
		Title:    "A payment was not accepted",
		Body: "Its card cannot be used here, because its owner took an earlier payment back. The payment is returned " +
			"to the card.",
	})
	return err
}

// setAside books a payment that is not what was requested to the suspense account; an admin decides.
func (ts *TopUps) setAside(ctx context.Context, tx *db.Tx, topup id.TopUp, pay stripe.Payment) error {
	came, err := stripe.FromCents(pay.Cents)
	if err != nil {
		return fmt.Errorf("payment %s: %w", pay.ID, err)
	}
	ts.log.ErrorContext(ctx, "a payment differs from what was requested", "topup", topup, "payment", pay.ID,
		"cents", pay.Cents, "currency", pay.Currency)
	if _, err := ledger.Post(ctx, tx, ledger.Entry{
		Kind: "topup_mismatch",
		Key:  ledgerKey(pay.ID),
		Ref:  topup.String(),
		Memo: "amount or currency differs from the top-up",
		Transfers: []ledger.Transfer{{
			Debit:  ledger.StripeClearing(pay.Currency),
			Credit: ledger.Suspense(pay.Currency),
			Amount: came,
		}},
	}); err != nil {
		return err
	}
	if err := notify.AddForAdmins(ctx, tx, notify.Notice{
		Key:      "topup_mismatch:" + pay.ID,
		Severity: notify.Bad,
		Object:   topup.String(),
		Title:    "A payment differs from what was requested",
		Body: fmt.Sprintf("Payment %s is %s %s, which is not the amount or currency of its top-up. It was booked to "+
			"suspense, and no wallet was credited. Look at it at Stripe, and refund it there if nothing explains it.",
			pay.ID, came.Plain(), pay.Currency),
	}); err != nil {
		return err
	}
	return failTopUp(ctx, tx, topup, Failed, "The payment differs from what was requested; our staff will look at it.",
		pay.ID)
}

// failTopUp ends a top-up that was not paid. One that succeeded stays so.
func failTopUp(ctx context.Context, tx *db.Tx, topup id.TopUp, state State, why, payment string) error {
	t, err := tx.Q.TopupForUpdate(ctx, topup)
	if err != nil {
		return fmt.Errorf("lock top-up %s: %w", topup, err)
	}
	if t.State != string(Pending) {
		return nil
	}
	if payment != "" {
		if err := tx.Q.SetTopupPayment(ctx, topup, &payment); err != nil {
			return fmt.Errorf("set top-up %s: %w", topup, err)
		}
	}
	if err := tx.Q.SettleTopup(ctx, string(state), why, topup); err != nil {
		return fmt.Errorf("settle top-up %s: %w", topup, err)
	}
	if t.Automatic {
		return stopAuto(ctx, tx, t.OrgID, why)
	}
	_, err = notify.Add(ctx, tx, notify.Notice{
		Org: t.OrgID, Key: noticeKey(topup), Severity: notify.Warn, Object: topup.String(),
		Title: fmt.Sprintf("A top-up of %s %s did not work", t.Amount.Plain(), t.Currency), Body: why,
	})
	return err
}
