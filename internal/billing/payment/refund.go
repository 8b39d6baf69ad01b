package payment

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/owed"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// Refunds gives unused balance back, and books refunds that were made at Stripe.
type Refunds struct {
	*core
	taxes    *Taxes
	receipts *Receipts
	invoices *Invoices
}

// Refund is unused balance on its way back to the card that paid it.
type Refund = client.Refund

// Refundable returns what of the org's balance can be given back now: what is available, less what is owed for storage,
// and no more than what is left of its payments, nor than refundRoom. Credit that was given away counts as spent first;
// a disputed payment gives nothing back.
func (rs *Refunds) Refundable(ctx context.Context, org id.Org) (money.Nano, error) {
	rows, err := rs.d.Q.RefundableTopups(ctx, org, rs.cfg.Currency)
	if err != nil {
		return 0, fmt.Errorf("read refundable top-ups of %s: %w", org, err)
	}
	wallet, err := ledger.Balance(ctx, rs.d.Q, ledger.Wallet(org, rs.cfg.Currency))
	if err != nil {
		return 0, err
	}
	bond, err := rs.inBond(ctx, rs.d.Q, org)
	if err != nil {
		return 0, err
	}
	claims, err := rs.d.Q.DisputeClaims(ctx, org, rs.cfg.Currency)
	if err != nil {
		return 0, fmt.Errorf("read claims on %s: %w", org, err)
	}
	past, err := rs.history(ctx, rs.d.Q, org)
	if err != nil {
		return 0, err
	}
	storage, err := owed.Read(ctx, rs.d.Q, org)
	if err != nil {
		return 0, err
	}
	rows = inReach(rs.cfg.RefundLimit, past, rows)
	most := refundable(storage.Of(wallet-money.Nano(claims.Short+claims.Debt)), bond, rows)
	return min(most, refundRoom(rs.cfg.RefundLimit, past)), nil
}

// inBond returns what an org moved from its wallet into the bond of its hosts: paid in, and not there to be given back.
func (rs *Refunds) inBond(ctx context.Context, q *dbq.Queries, org id.Org) (money.Nano, error) {
	n, err := q.BondDeposited(ctx, org, rs.cfg.Currency)
	if err != nil && !db.NoRows(err) {
		return 0, fmt.Errorf("read bond of %s: %w", org, err)
	}
	return n, nil
}

// refundable returns what of a wallet's balance, less what disputes claim, can go back to the payments, in whole cents.
func refundable(wallet, bond money.Nano, rows []dbq.RefundableTopupsRow) money.Nano {
	var left money.Nano
	for _, t := range rows {
		left += refundableOf(t)
	}
	n := max(0, min(wallet, left-bond)) // an org's credit is not its money
	return n - n%money.Cent
}

func refundableOf(t dbq.RefundableTopupsRow) money.Nano {
	if t.Disputed {
		return 0
	}
	return max(0, t.Amount-money.Nano(t.Refunded))
}

// GiveBack sends unused balance back to the payments it came from, newest first, each at most what is left of it. The
// money leaves the wallet at once, and the tax that was charged on it goes back with it. Faults: Invalid (the amount),
// Conflict (more than is unused; the message has the amount), QuotaExceeded (more than the limit on refunds).
// With an idempotency key the same refunds are returned again, in their present state.
func (rs *Refunds) GiveBack(ctx context.Context, payer account.Principal, amount money.Nano,
	key idem.Request) ([]Refund, idem.Outcome, error) {
	switch {
	case amount < money.Cent || amount > 100*MaxTopUp:
		return nil, idem.Outcome{}, fault.InvalidField("amount", "must be at least %s", money.Cent.Plain())
	case amount%money.Cent != 0:
		return nil, idem.Outcome{}, fault.InvalidField("amount", "must be whole cents")
	}
	var send []id.Outbox
	made, done, err := idem.Once(ctx, rs.d, key.ByReference(), func(ctx context.Context, tx *db.Tx) ([]id.Refund, error) {
		out := &outbox.Batch{Tx: tx}
		made, err := rs.allot(ctx, out, payer, amount)
		if err != nil {
			return nil, err
		}
		send = out.Rows
		return made, audit.Record(ctx, tx, payer.Event("billing.refund", payer.Org.String(),
			map[string]any{"amount": amount.String()}))
	})
	if err != nil {
		return nil, idem.Outcome{}, fmt.Errorf("give back: %w", err)
	}
	if !done.Replayed {
		rs.out.SendNow(ctx, send)
	}
	list, err := rs.these(ctx, payer.Org, made)
	return list, done.Again(), err
}

// allot spreads amount over the org's payments, newest first, and queues a refund of each part.
func (rs *Refunds) allot(ctx context.Context, out *outbox.Batch, payer account.Principal,
	amount money.Nano) (made []id.Refund, err error) {
	tx := out.Tx
	if _, err := tx.Q.LockTopupsOfOrg(ctx, payer.Org); err != nil {
		return nil, fmt.Errorf("lock top-ups of %s: %w", payer.Org, err)
	}
	if err := account.LockCircle(ctx, tx, payer.Org); err != nil {
		return nil, err
	}
	rows, err := tx.Q.RefundableTopups(ctx, payer.Org, rs.cfg.Currency)
	if err != nil {
		return nil, fmt.Errorf("read top-ups of %s: %w", payer.Org, err)
	}
	wallet := ledger.Wallet(payer.Org, rs.cfg.Currency)
	books, err := ledger.Lock(ctx, tx, wallet, ledger.Refunds(rs.cfg.Currency))
	if err != nil {
		return nil, err
	}
	bond, err := rs.inBond(ctx, tx.Q, payer.Org)
	if err != nil {
		return nil, err
	}
	storage, err := owed.Read(ctx, tx.Q, payer.Org)
	if err != nil {
		return nil, err
	}
	unused := refundable(storage.Of(books.Balance(wallet)-books.Reserved(wallet)), bond, rows)
	if amount > unused {
		return nil, tooMuch(unused, storage.Amount)
	}
	past, err := rs.history(ctx, tx.Q, payer.Org)
	if err != nil {
		return nil, err
	}
	rows = inReach(rs.cfg.RefundLimit, past, rows)
	most := min(refundable(unused, bond, rows), refundRoom(rs.cfg.RefundLimit, past))
	if amount > most {
		return nil, overRefundLimit(rs.cfg, past, most)
	}
	var entries []ledger.Entry
	left := amount
	for _, row := range rows {
		part := min(left, refundableOf(row))
		if part <= 0 {
			continue
		}
		t, err := tx.Q.Topup(ctx, row.ID)
		if err != nil {
			return nil, fmt.Errorf("read top-up %s: %w", row.ID, err)
		}
		r := id.New[id.Refund]()
		back := taxBack(row.Amount, row.Tax, money.Nano(row.Refunded), part, money.Nano(row.TaxRefunded))
		if err := rs.queue(ctx, out, t, r, refundOf{*row.PaymentIntentID, payer.User, part, back}); err != nil {
			return nil, err
		}
		entries = append(entries, refundEntry(r, wallet, "unused balance, back to the card", part, back))
		made, left = append(made, r), left-part
	}
	_, err = ledger.PostAll(ctx, tx, entries)
	return made, err
}

// refundOf is what of a payment is refunded.
type refundOf struct {
	payment string     // at Stripe
	user    id.User    // who requested it, or who paid
	net     money.Nano // leaves the wallet
	tax     money.Nano // goes back with it
}

// queue stores a refund of a top-up with its tax and queues it for Stripe. The caller posts its refundEntry.
func (rs *Refunds) queue(ctx context.Context, out *outbox.Batch, t dbq.Topup, r id.Refund, of refundOf) error {
	if err := out.Tx.Q.InsertRefund(ctx, dbq.InsertRefundParams{
		ID:       r,
		OrgID:    t.OrgID,
		TopupID:  t.ID,
		UserID:   of.user,
		Amount:   of.net,
		Currency: t.Currency,
		Tax:      of.tax,
	}); err != nil {
		return fmt.Errorf("insert refund %s: %w", r, err)
	}
	if err := out.Add(ctx, kindRefund, r.String(), "refund:"+r.String(), stripe.NewRefund{
		Refund:  r.String(),
		Payment: of.payment,
		Cents:   int64((of.net + of.tax) / money.Cent),
		Meta:    refundMeta(of.net),
	}); err != nil {
		return err
	}
	return rs.taxes.record(ctx, out.Tx, t, taxEntry{tax.Refund, refundKey(r), r.String(), -of.net, -of.tax})
}

// refundEntry takes a refund and its tax out of the wallet.
func refundEntry(r id.Refund, wallet ledger.Account, memo string, net, on money.Nano) ledger.Entry {
	return ledger.Entry{
		Kind:      "refund",
		Key:       refundKey(r),
		Ref:       r.String(),
		Memo:      memo,
		Transfers: withTax(ledger.Refunds(wallet.Currency), wallet, false, net, on),
	}
}

// refundKey returns the key of the entry that takes a refund out of the wallet.
func refundKey(r id.Refund) string { return "refund:" + r.String() + ":asked" }

// tooMuch is no lack of funds: to add credit would not make more of it refundable than was just added.
func tooMuch(most, owed money.Nano) *fault.Fault {
	if owed > 0 {
		return fault.New(fault.Conflict, "only %s can be refunded: your volumes come first, and you owe %s for what they "+
			"stored", most.Plain(), owed.Plain())
	}
	if most == 0 {
		return fault.New(fault.Conflict, "nothing can be refunded now: only unused credit that was paid by card and is "+
			"not disputed can be refunded")
	}
	return fault.New(fault.Conflict, "only %s can be refunded: what is unused and left of your payments; request that "+
		"amount or less", most.Plain())
}

func (rs *Refunds) these(ctx context.Context, org id.Org, only []id.Refund) ([]Refund, error) {
	all, err := rs.List(ctx, org)
	if err != nil {
		return nil, err
	}
	out := make([]Refund, 0, len(only))
	for _, r := range all {
		for _, o := range only {
			if r.ID == o {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// refundsShown bounds a list of refunds.
const refundsShown = 200

// List returns the org's last ones, newest first.
func (rs *Refunds) List(ctx context.Context, org id.Org) ([]Refund, error) {
	rows, err := rs.d.Q.ListRefunds(ctx, org, refundsShown)
	if err != nil {
		return nil, fmt.Errorf("read refunds of %s: %w", org, err)
	}
	out := make([]Refund, len(rows))
	for i, r := range rows {
		out[i] = Refund{
			ID:        r.ID,
			TopUp:     r.TopupID,
			Amount:    r.Amount,
			Tax:       r.Tax,
			Total:     r.Amount + r.Tax,
			Currency:  r.Currency,
			State:     State(r.State),
			Failure:   r.Failure,
			CreatedAt: r.CreatedAt,
			SettledAt: r.SettledAt,
		}
	}
	return out, nil
}

// refundSender makes refunds.
type refundSender struct{ *Refunds }

// Send makes a refund. If Stripe may have forgotten the key, it looks up what the row did, and gives the row up if it
// did nothing.
func (p refundSender) Send(ctx context.Context, client *stripe.Client, row outbox.Row) (string, outbox.Book, error) {
	var n stripe.NewRefund
	if err := json.Unmarshal(row.Params, &n); err != nil {
		return "", nil, err
	}
	r, err := id.Parse[id.Refund](row.Ref)
	if err != nil {
		return "", nil, err
	}
	var got stripe.Refund
	if row.Old {
		found, err := client.FindRefund(ctx, n.Payment, n.Refund)
		if err != nil {
			return "", nil, err
		}
		if found == nil {
			return "", nil, outbox.GivenUp("The payment service could not be reached for a day.")
		}
		got = *found
	} else if got, err = client.CreateRefund(ctx, row.Key, n); err != nil {
		return "", nil, err
	}
	return got.ID, func(ctx context.Context, tx *db.Tx) error { return p.settle(ctx, tx, r, got) }, nil
}

// Refused puts the money back into the wallet.
func (p refundSender) Refused(ctx context.Context, tx *db.Tx, row outbox.Row, why *stripe.Error) error {
	p.refusal(ctx, row, why)
	ours, err := id.Parse[id.Refund](row.Ref)
	if err != nil {
		return err
	}
	r, err := tx.Q.RefundForUpdate(ctx, ours)
	if err != nil {
		return err
	}
	return p.fail(ctx, tx, r, "", "Stripe refuses it.")
}

// settle books the state of a refund at Stripe, any number of times and in any order.
func (rs *Refunds) settle(ctx context.Context, tx *db.Tx, ours id.Refund, got stripe.Refund) error {
	r, err := tx.Q.RefundForUpdate(ctx, ours)
	if err != nil {
		return fmt.Errorf("lock refund %s: %w", ours, err)
	}
	switch {
	case got.Status == stripe.Succeeded && State(r.State) == Pending:
		if err := postRefundPaid(ctx, tx, r, got.ID); err != nil {
			return err
		}
		return tx.Q.SettleRefund(ctx, dbq.SettleRefundParams{State: string(Succeeded), RefundID: &got.ID, ID: ours})
	case got.Status == stripe.Failed || got.Status == stripe.Canceled:
		why := "The bank sent it back (" + strings.ReplaceAll(got.Failure, "_", " ") + ")."
		if State(r.State) == Pending && !got.Booked {
			why = "Stripe could not make it."
		} else if State(r.State) == Pending {
			// It had left Stripe's balance before the platform learned of it, and is there again.
			if err := postRefundPaid(ctx, tx, r, got.ID); err != nil {
				return err
			}
			r.State = string(Succeeded)
		}
		return rs.fail(ctx, tx, r, got.ID, why)
	}
	return nil
}

func postRefundPaid(ctx context.Context, tx *db.Tx, r dbq.Refund, stripeID string) error {
	_, err := ledger.Post(ctx, tx, ledger.Entry{
		Kind: "refund_paid",
		Key:  "refund:" + stripeID,
		Ref:  r.ID.String(),
		Transfers: []ledger.Transfer{{
			Debit:  ledger.Refunds(r.Currency),
			Credit: ledger.StripeClearing(r.Currency),
			Amount: r.Amount + r.Tax,
		}},
	})
	return err
}

// fail puts the money back into the wallet: from Stripe when the refund had been paid, else from its way there.
func (rs *Refunds) fail(ctx context.Context, tx *db.Tx, r dbq.Refund, stripeID, why string) error {
	from, key := ledger.Refunds(r.Currency), "refund:"+r.ID.String()+":returned"
	switch State(r.State) {
	case Failed:
		return nil
	case Succeeded:
		from, key = ledger.StripeClearing(r.Currency), "refund_failed:"+stripeID
	}
	booked, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "refund_returned", Key: key, Ref: r.ID.String(), Memo: why,
		Transfers: withTax(from, ledger.Wallet(r.OrgID, r.Currency), true, r.Amount, r.Tax)})
	if err != nil {
		return err
	}
	if booked {
		t, err := tx.Q.Topup(ctx, r.TopupID)
		if err != nil {
			return fmt.Errorf("read top-up %s: %w", r.TopupID, err)
		}
		returned := taxEntry{tax.RefundReturned, key, r.ID.String(), r.Amount, r.Tax}
		if err := rs.taxes.record(ctx, tx, t, returned); err != nil {
			return err
		}
	}
	set := dbq.SettleRefundParams{State: string(Failed), Failure: why, ID: r.ID}
	if stripeID != "" {
		set.RefundID = &stripeID
	}
	if err := tx.Q.SettleRefund(ctx, set); err != nil {
		return fmt.Errorf("settle refund %s: %w", r.ID, err)
	}
	_, err = notify.Add(ctx, tx, notify.Notice{
		Org:      r.OrgID,
		Key:      "refund:" + r.ID.String(),
		Severity: notify.Warn,
		Object:   r.OrgID.String(),
		Title:    fmt.Sprintf("A refund of %s %s did not work", r.Amount.Plain(), r.Currency),
		Body:     why + " The money is in your wallet again.",
	})
	return err
}

// refresh reads a refund from Stripe and books its state.
func (rs *Refunds) refresh(ctx context.Context, object string) (note string, err error) {
	got, err := rs.stripe.Refund(ctx, object)
	if err != nil {
		return ifMissing(err)
	}
	ours, err := id.Parse[id.Refund](got.Refund)
	if err != nil {
		return rs.refreshInvoice(ctx, got)
	}
	err = rs.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return rs.settle(ctx, tx, ours, got) })
	if db.NoRows(err) {
		return "not a refund of this platform", nil
	}
	return "", err
}
