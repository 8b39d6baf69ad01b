package payment

import (
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
)

// refreshDispute books what Stripe says of a dispute, any number of times and in any order: while it is open the org's
// money is set aside as far as there is some, and what is missing is reserved in its wallet, so that whatever is
// credited to it later is set aside too (CollectClaims). What Stripe withdraws and gives back goes through the same
// account. Won, what was set aside returns. Lost, the part that nothing covered is bad debt and stays reserved until it
// is repaid, the tax on the disputed payment is owed no more, and the card is blocked.
func (p *Payments) refreshDispute(ctx context.Context, object string) (note string, err error) {
	d, err := p.stripe.Dispute(ctx, object)
	if err != nil {
		return ifMissing(err)
	}
	if d.Payment == "" {
		return notOurs, nil
	}
	for _, m := range append(d.Moves, stripe.BalanceTx{Cents: d.Cents}) {
		if _, err := fromCents(m.Cents); err != nil {
			return "", fmt.Errorf("dispute %s: %w", d.ID, err)
		}
	}
	t, err := p.d.Q.TopupOfPayment(ctx, &d.Payment)
	if db.NoRows(err) {
		return p.refreshInvoiceDispute(ctx, d)
	}
	if err != nil {
		return "", fmt.Errorf("top-up of %s: %w", d.Payment, err)
	}
	if d.Currency != t.Currency {
		return "", fmt.Errorf("dispute %s is in %s, its payment in %s", d.ID, d.Currency, t.Currency)
	}
	card, err := p.cardOfLost(ctx, d)
	if err != nil {
		return "", err
	}
	if err := p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return p.settleDispute(ctx, tx, t, d, card)
	}); err != nil {
		return "", err
	}
	p.collectNow(ctx, t.OrgID, t.Currency)
	return "", nil
}

// cardOfLost is the fingerprint of the card behind a dispute that its owner has won; "" where it is not decided, or not
// told.
func (p *Payments) cardOfLost(ctx context.Context, d stripe.Dispute) (string, error) {
	if d.Open || d.Won {
		return "", nil
	}
	pay, err := p.stripe.Payment(ctx, d.Payment)
	if err != nil {
		return "", fmt.Errorf("the card of dispute %s: %w", d.ID, err)
	}
	return pay.Fingerprint, nil
}

// closeDispute stores the end of a dispute and what follows for its org. debt is what the dispute cost that nothing
// covered; card is the fingerprint of the card to block, "" for none. books has the org's wallet.
func (p *Payments) closeDispute(ctx context.Context, tx *db.Tx, books *ledger.Locked, row dbq.Dispute, state string,
	debt money.Nano, card string) error {
	if err := tx.Q.CloseDispute(ctx, state, row.Tax, row.ID); err != nil {
		return fmt.Errorf("dispute %s: %w", row.ID, err)
	}
	if debt > 0 {
		if err := tx.Q.SetDisputeDebt(ctx, debt, row.ID); err != nil {
			return fmt.Errorf("dispute %s: %w", row.ID, err)
		}
	}
	if card != "" {
		if err := tx.Q.BlockCard(ctx, card, row.ID); err != nil {
			return fmt.Errorf("block the card of %s: %w", row.ID, err)
		}
	}
	if err := p.reserve(ctx, tx, books, ledger.Wallet(row.OrgID, row.Currency)); err != nil {
		return err
	}
	return p.updateStanding(ctx, tx, row.OrgID)
}

func (p *Payments) settleDispute(ctx context.Context, tx *db.Tx, t dbq.Topup, d stripe.Dispute, card string) error {
	wallet, aside := ledger.Wallet(t.OrgID, t.Currency), ledger.DisputeHold(t.OrgID, t.Currency)
	// The top-up is locked first, as a refund does: what is disputed is not refunded, and the other way round.
	if _, err := tx.Q.TopupForUpdate(ctx, t.ID); err != nil {
		return fmt.Errorf("top-up %s: %w", t.ID, err)
	}
	row, err := tx.Q.DisputeForUpdate(ctx, d.ID)
	fresh := db.NoRows(err)
	if err != nil && !fresh {
		return fmt.Errorf("dispute %s: %w", d.ID, err)
	}
	books, err := ledger.Lock(ctx, tx, wallet, aside, ledger.StripeClearing(t.Currency), ledger.BadDebt(t.Currency),
		ledger.StripeFees(t.Currency), ledger.TaxPayable(t.Currency))
	if err != nil {
		return err
	}
	post := func(kind, key, memo string, debit, credit ledger.Account, amount money.Nano) error {
		if amount == 0 {
			return nil
		}
		_, err := books.Post(ctx, ledger.Entry{Kind: kind, Key: key, Ref: t.ID.String(), Memo: memo,
			Transfers: []ledger.Transfer{{Debit: debit, Credit: credit, Amount: amount}}})
		return err
	}
	amount := money.Nano(d.Cents) * money.Cent
	share, err := taxInDispute(ctx, tx, t, d.ID, amount)
	if err != nil {
		return err
	}
	if fresh {
		row = dbq.Dispute{
			ID:       d.ID,
			OrgID:    t.OrgID,
			Amount:   amount,
			Held:     max(0, min(amount-share, books.Balance(wallet)-books.Reserved(wallet))),
			Currency: t.Currency,
			State:    disputeOpen,
		}
		paid := t.CreatedAt
		if t.SettledAt != nil {
			paid = *t.SettledAt
		}
		if _, err := tx.Q.InsertDispute(ctx, dbq.InsertDisputeParams{
			ID:       d.ID,
			OrgID:    t.OrgID,
			TopupID:  t.ID,
			Amount:   amount,
			Held:     row.Held,
			Currency: t.Currency,
			Reason:   d.Reason,
			PaidAt:   paid,
			Tax:      share,
			Kind:     kindDispute,
		}); err != nil {
			return fmt.Errorf("insert dispute: %w", err)
		}
		if err := post("dispute", "dispute:"+d.ID+":opened", "a payment is disputed", wallet, aside, row.Held); err != nil {
			return err
		}
		if err := p.notifyDispute(ctx, tx, t, d); err != nil {
			return err
		}
		if err := p.reserve(ctx, tx, books, wallet); err != nil {
			return err
		}
		if err := p.updateStanding(ctx, tx, t.OrgID); err != nil {
			return err
		}
	}
	if err := p.bookDisputeMoves(ctx, books, t, d, aside); err != nil {
		return err
	}
	if d.Open || row.State != disputeOpen {
		return nil
	}
	if d.Won {
		if err := post("dispute_won", "dispute:"+d.ID+":won", "the dispute was decided for you", aside, wallet,
			row.Held); err != nil {
			return err
		}
		return p.closeDispute(ctx, tx, books, row, "won", 0, "")
	}
	if err := p.loseDispute(ctx, tx, books, t, row, share); err != nil {
		return err
	}
	row.Tax = share
	return p.closeDispute(ctx, tx, books, row, "lost", max(0, row.Amount-share-row.Held), card)
}

// loseDispute books the end of a dispute that was decided for the card's owner: its tax is owed no more, and what
// neither that nor the wallet covered is bad debt.
func (p *Payments) loseDispute(ctx context.Context, tx *db.Tx, books *ledger.Locked, t dbq.Topup, row dbq.Dispute,
	share money.Nano) error {
	aside, key := ledger.DisputeHold(t.OrgID, t.Currency), "dispute:"+row.ID+":lost"
	e := ledger.Entry{Kind: "dispute_lost", Key: key, Ref: t.ID.String(), Memo: "what no wallet covered"}
	if share > 0 {
		e.Transfers = append(e.Transfers, ledger.Transfer{Debit: ledger.TaxPayable(t.Currency), Credit: aside, Amount: share})
	}
	switch rest := row.Amount - share - row.Held; {
	case rest > 0:
		e.Transfers = append(e.Transfers, ledger.Transfer{Debit: ledger.BadDebt(t.Currency), Credit: aside, Amount: rest})
	case rest < 0: // more was set aside than was due: a refund under way failed meanwhile, and more of it is tax
		e.Transfers = append(e.Transfers, ledger.Transfer{
			Debit:  aside,
			Credit: ledger.Wallet(t.OrgID, t.Currency),
			Amount: -rest,
		})
	}
	if len(e.Transfers) > 0 {
		if booked, err := books.Post(ctx, e); err != nil || !booked {
			return err
		}
	}
	return p.recordTax(ctx, tx, t, tax.DisputeLost, key, t.ID.String(), share-row.Amount, -share)
}

// taxInDispute is how much of what is disputed is tax, by what has gone back of the payment so far. It is asked again
// when the dispute is over: refunds may have failed meanwhile.
func taxInDispute(ctx context.Context, tx *db.Tx, t dbq.Topup, dispute string, amount money.Nano) (money.Nano, error) {
	gone, err := tx.Q.GoneBack(ctx, t.ID, dispute)
	if err != nil {
		return 0, fmt.Errorf("top-up %s: %w", t.ID, err)
	}
	before, back := gone.Amount+gone.Tax, gone.Tax
	// Stripe gives back no more than was paid: where there is no room for the refunds under way, it has refused them.
	if waiting := gone.Waiting + gone.WaitingTax; before+waiting+int64(amount) <= int64(t.Amount+t.Tax) {
		before, back = before+waiting, back+gone.WaitingTax
	}
	return min(amount, taxBack(t.Amount+t.Tax, t.Tax, money.Nano(before), amount, money.Nano(back))), nil
}

const (
	disputeOpen = "open"

	kindDispute = "dispute"
	kindGiven   = "refund" // made at Stripe by somebody of ours
)

// bookDisputeMoves books each change of Stripe's balance for a dispute once, under the change's own id, and its fee.
func (p *Payments) bookDisputeMoves(ctx context.Context, books *ledger.Locked, t dbq.Topup, d stripe.Dispute,
	aside ledger.Account) error {
	clearing := ledger.StripeClearing(t.Currency)
	for _, m := range d.Moves {
		n := money.Nano(m.Cents) * money.Cent
		x := ledger.Transfer{Debit: clearing, Credit: aside, Amount: n}
		if n < 0 {
			x = ledger.Transfer{Debit: aside, Credit: clearing, Amount: -n}
		}
		if n != 0 {
			if _, err := books.Post(ctx, ledger.Entry{
				Kind:      "dispute_funds",
				Key:       balanceKey(m.ID),
				Ref:       t.ID.String(),
				Memo:      d.ID,
				Transfers: []ledger.Transfer{x},
			}); err != nil {
				return err
			}
		}
		if e, any := feeEntry(m, t.ID.String()); any {
			if _, err := books.Post(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// notifyDispute tells the org, and stops charging a card whose owner takes payments back.
func (p *Payments) notifyDispute(ctx context.Context, tx *db.Tx, t dbq.Topup, d stripe.Dispute) error {
	if err := p.stopAuto(ctx, tx, t.OrgID, "A payment is disputed."); err != nil {
		return err
	}
	_, err := notify.Add(ctx, tx, notify.Notice{
		Org:      t.OrgID,
		Key:      "dispute:" + d.ID,
		Severity: notify.Bad,
		Object:   t.OrgID.String(),
		Title:    fmt.Sprintf("A payment of %s %s is disputed", (t.Amount + t.Tax).Plain(), t.Currency),
		Body: fmt.Sprintf("The card's bank says: %s. Until it is decided, that much of your balance is set aside, "+
			"whatever is credited to you later included.", strings.ReplaceAll(d.Reason, "_", " ")),
	})
	return err
}
