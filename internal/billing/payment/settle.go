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
)

// settle books what Stripe says of a top-up's payment. last says that a refusal is the end: on a checkout page the
// payer may try another card. Any number of calls, in any order, book a success once; a success always counts, even
// for a top-up that was given up before.
func (p *Payments) settle(ctx context.Context, tx *db.Tx, topup id.TopUp, pay stripe.Payment, last bool) error {
	t, err := tx.Q.TopupForUpdate(ctx, topup)
	if err != nil {
		return fmt.Errorf("top-up %s: %w", topup, err)
	}
	if t.State == string(Succeeded) {
		if pay.Receipt == "" || pay.Receipt == t.ReceiptURL {
			return nil
		}
		return tx.Q.SetTopupReceipt(ctx, pay.Receipt, topup) // the call that paid did not show it
	}
	switch {
	case pay.Status == stripe.Succeeded:
		if err := tx.Q.SetTopupPayment(ctx, topup, &pay.ID); err != nil {
			return fmt.Errorf("top-up %s: %w", topup, err)
		}
		if pay.Cents != int64((t.Amount+t.Tax)/money.Cent) || pay.Currency != t.Currency {
			return p.setAside(ctx, tx, topup, pay)
		}
		blocked, err := p.bookTopup(ctx, tx, t, pay)
		if err != nil {
			return err
		}
		if err := tx.Q.SettleTopup(ctx, string(Succeeded), "", topup); err != nil {
			return fmt.Errorf("top-up %s: %w", topup, err)
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		if err := p.issue(ctx, tx, t, pay.ID, now); err != nil {
			return err
		}
		if t.Automatic {
			if _, err := notify.Add(ctx, tx, notify.Notice{
				Org:      t.OrgID,
				Key:      noticeKey(topup),
				Severity: notify.Info,
				Object:   topup.String(),
				Title:    fmt.Sprintf("%s %s were added by auto top-up", t.Amount.Plain(), t.Currency),
				Body:     "The payment has a receipt.",
			}); err != nil {
				return err
			}
		}
		if pay.Receipt != "" {
			if err := tx.Q.SetTopupReceipt(ctx, pay.Receipt, topup); err != nil {
				return fmt.Errorf("top-up %s: %w", topup, err)
			}
		}
		tx.AfterCommit(func() { p.collectNow(context.WithoutCancel(ctx), t.OrgID, t.Currency) })
		if blocked {
			return nil // the card is not kept
		}
		return p.saveCard(ctx, tx, t.OrgID, pay.Card)
	case pay.Status == stripe.Failed && last:
		return p.fail(ctx, tx, topup, Failed, pay.Failure, pay.ID)
	case pay.Status == stripe.Canceled:
		return p.fail(ctx, tx, topup, Canceled, pay.Failure, pay.ID)
	}
	if err := tx.Q.SetTopupPayment(ctx, topup, &pay.ID); err != nil { // still waiting
		return fmt.Errorf("top-up %s: %w", topup, err)
	}
	return tx.Q.SetTopupAction(ctx, pay.ActionURL, topup)
}

// bookTopup credits a payment. One by a card that is blocked goes back at once, in the same transaction, so that
// nothing of it can be spent.
func (p *Payments) bookTopup(ctx context.Context, tx *db.Tx, t dbq.Topup,
	pay stripe.Payment) (blocked bool, err error) {
	if pay.Fingerprint != "" {
		if blocked, err = tx.Q.CardIsBlocked(ctx, pay.Fingerprint); err != nil {
			return false, fmt.Errorf("top-up %s: %w", t.ID, err)
		}
	}
	wallet := ledger.Wallet(t.OrgID, t.Currency)
	entries := []ledger.Entry{{
		Kind: "topup", Key: ledgerKey(pay.ID), Ref: t.ID.String(), Memo: "card payment",
		Transfers: withTax(ledger.StripeClearing(t.Currency), wallet, true, t.Amount, t.Tax),
	}}
	back := id.New[id.Refund]()
	asked := "refund:" + back.String() + ":asked"
	if blocked {
		entries = append(entries, ledger.Entry{
			Kind:      "refund",
			Key:       asked,
			Ref:       back.String(),
			Memo:      "paid with a blocked card",
			Transfers: withTax(ledger.Refunds(t.Currency), wallet, false, t.Amount, t.Tax),
		})
	}
	booked, err := ledger.PostAll(ctx, tx, entries)
	if err != nil {
		return blocked, err
	}
	if blocked && !booked[0] {
		return true, fmt.Errorf("payment %s of top-up %s is in the books already", pay.ID, t.ID)
	}
	if booked[0] {
		if err := p.recordTax(ctx, tx, t, tax.TopUp, ledgerKey(pay.ID), t.ID.String(), t.Amount, t.Tax); err != nil {
			return blocked, err
		}
	}
	if !blocked {
		return false, nil
	}
	if err := tx.Q.InsertRefund(ctx, dbq.InsertRefundParams{
		ID:       back,
		OrgID:    t.OrgID,
		TopupID:  t.ID,
		UserID:   t.UserID,
		Amount:   t.Amount,
		Currency: t.Currency,
		Tax:      t.Tax,
	}); err != nil {
		return true, fmt.Errorf("insert refund: %w", err)
	}
	if err := p.recordTax(ctx, tx, t, tax.Refund, asked, back.String(), -t.Amount, -t.Tax); err != nil {
		return true, err
	}
	out := &outgoing{tx: tx}
	if err := out.add(ctx, kindRefund, back.String(), "refund:"+back.String(), stripe.NewRefund{
		Refund:  back.String(),
		Payment: pay.ID,
		Cents:   int64((t.Amount + t.Tax) / money.Cent),
		Meta:    refundMeta(t.Amount),
	}); err != nil {
		return true, err
	}
	_, err = notify.Add(ctx, tx, notify.Notice{
		Org:      t.OrgID,
		Key:      "card_blocked:" + t.ID.String(),
		Severity: notify.Bad,
		Object:   t.ID.String(),
		Title:    "A payment was not accepted",
		Body: "Its card cannot be used here, because its owner took an earlier payment back. The payment is returned " +
			"to the card.",
	})
	return true, err
}

// collectNow is collect for what was just credited; CollectClaims does it again where it fails.
func (p *Payments) collectNow(ctx context.Context, org id.Org, currency string) {
	c, err := p.d.Q.DisputeClaims(ctx, org, currency)
	if err == nil && c.Short+c.Debt > 0 {
		err = p.collect(ctx, org, currency)
	}
	if err != nil {
		p.log.WarnContext(ctx, "claims are left to the next pass", "org", org, "error", err)
	}
}

// setAside books a payment that is not what was asked for to the suspense account, for people to look at.
func (p *Payments) setAside(ctx context.Context, tx *db.Tx, topup id.TopUp, pay stripe.Payment) error {
	came, err := fromCents(pay.Cents)
	if err != nil {
		return fmt.Errorf("payment %s: %w", pay.ID, err)
	}
	p.log.ErrorContext(ctx, "a payment is not what was asked for", "topup", topup, "payment", pay.ID, "cents", pay.Cents,
		"currency", pay.Currency)
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
	if err := notifyAdmins(ctx, tx, notify.Notice{
		Key:      "topup_mismatch:" + pay.ID,
		Severity: notify.Bad,
		Object:   topup.String(),
		Title:    "A payment is not what was asked for",
		Body: fmt.Sprintf("Payment %s is %s %s, which is not the amount or currency of its top-up. It was booked to "+
			"suspense, and no wallet was credited. "+
			"Look at it with Stripe, and give it back there if nothing else explains it.", pay.ID, came.Plain(), pay.Currency),
	}); err != nil {
		return err
	}
	return p.fail(ctx, tx, topup, Failed, "The payment differs from what was asked for; our people will look at it.",
		pay.ID)
}

// fail ends a top-up that was not paid. One that succeeded stays so.
func (p *Payments) fail(ctx context.Context, tx *db.Tx, topup id.TopUp, state State, why, payment string) error {
	t, err := tx.Q.TopupForUpdate(ctx, topup)
	if err != nil {
		return fmt.Errorf("top-up %s: %w", topup, err)
	}
	if t.State != string(Pending) {
		return nil
	}
	if payment != "" {
		if err := tx.Q.SetTopupPayment(ctx, topup, &payment); err != nil {
			return fmt.Errorf("top-up %s: %w", topup, err)
		}
	}
	if err := tx.Q.SettleTopup(ctx, string(state), why, topup); err != nil {
		return fmt.Errorf("top-up %s: %w", topup, err)
	}
	if t.Automatic {
		return p.stopAuto(ctx, tx, t.OrgID, why)
	}
	_, err = notify.Add(ctx, tx, notify.Notice{
		Org: t.OrgID, Key: noticeKey(topup), Severity: notify.Warn, Object: topup.String(),
		Title: fmt.Sprintf("A top-up of %s %s did not work", t.Amount.Plain(), t.Currency), Body: why,
	})
	return err
}
