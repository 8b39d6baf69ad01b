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

// Disputes books what becomes of payments that were taken back, or may be.
type Disputes struct {
	*core
	taxes    *Taxes
	claims   *Claims
	invoices *Invoices
}

// refresh books the state of a dispute at Stripe, any number of times and in any order. While it is open the org's
// money is set aside as far as there is some, in the wallet first and then in the bond of its hosts; what is missing is
// reserved in both, so that whatever is credited to them later is set aside too (Claims.Collect). What Stripe withdraws
// and returns goes through the same account. If the dispute is won, what was set aside returns. If it is lost, the part
// that nothing covered is bad debt and stays reserved until it is repaid, the tax on the disputed payment is not owed
// any more, and the card is blocked.
func (ds *Disputes) refresh(ctx context.Context, object string) (note string, err error) {
	d, err := ds.stripe.Dispute(ctx, object)
	if err != nil {
		return ifMissing(err)
	}
	if d.Payment == "" {
		return notOurs, nil
	}
	for _, m := range append(d.Moves, stripe.BalanceTx{Cents: d.Cents}) {
		if _, err := stripe.FromCents(m.Cents); err != nil {
			return "", fmt.Errorf("dispute %s: %w", d.ID, err)
		}
	}
	t, err := ds.d.Q.TopupOfPayment(ctx, &d.Payment)
	if db.NoRows(err) {
		return ds.refreshInvoice(ctx, d)
	}
	if err != nil {
		return "", fmt.Errorf("read top-up of %s: %w", d.Payment, err)
	}
	if d.Currency != t.Currency {
		return "", fmt.Errorf("dispute %s is in %s, its payment in %s", d.ID, d.Currency, t.Currency)
	}
	card, err := ds.cardOfLost(ctx, d)
	if err != nil {
		return "", err
	}
	if err := ds.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return ds.settle(ctx, tx, t, d, card)
	}); err != nil {
		return "", err
	}
	ds.claims.collectNow(ctx, t.OrgID, t.Currency)
	return "", nil
}

// cardOfLost returns the fingerprint of the card behind a dispute that its owner has won; "" if it is not decided, or
// Stripe has none.
func (ds *Disputes) cardOfLost(ctx context.Context, d stripe.Dispute) (string, error) {
	if d.Open || d.Won {
		return "", nil
	}
	pay, err := ds.stripe.Payment(ctx, d.Payment)
	if err != nil {
		return "", fmt.Errorf("the card of dispute %s: %w", d.ID, err)
	}
	return pay.Fingerprint, nil
}

// settle books the state of a dispute of a top-up. card is the fingerprint of the card to block if it is lost.
func (ds *Disputes) settle(ctx context.Context, tx *db.Tx, t dbq.Topup, at stripe.Dispute, card string) error {
	// The top-up is locked first, as for a refund: what is disputed is not refunded, and what is refunded not disputed.
	if _, err := tx.Q.TopupForUpdate(ctx, t.ID); err != nil {
		return fmt.Errorf("lock top-up %s: %w", t.ID, err)
	}
	d := &lockedDispute{
		Dispute: at,
		ref:     t.ID.String(),
		wallet:  ledger.Wallet(t.OrgID, t.Currency),
		aside:   ledger.DisputeHold(t.OrgID, t.Currency),
	}
	var err error
	if d.row, d.fresh, err = lockDispute(ctx, tx, d.ID); err != nil {
		return err
	}
	accounts, err := bond.Account(ctx, tx.Q, t.OrgID, t.Currency)
	if err != nil {
		return err
	}
	accounts = append(accounts, d.wallet, d.aside, ledger.StripeClearing(t.Currency), ledger.BadDebt(t.Currency),
		ledger.StripeFees(t.Currency), ledger.TaxPayable(t.Currency))
	if d.accounts, err = ledger.Lock(ctx, tx, accounts...); err != nil {
		return err
	}
	share, err := taxInDispute(ctx, tx, t, d.ID, money.Nano(d.Cents)*money.Cent)
	if err != nil {
		return err
	}
	if d.fresh {
		if err := openTopupDispute(ctx, tx, d, t, share); err != nil {
			return err
		}
	}
	if err := bookDisputeMoves(ctx, d, t.Currency); err != nil {
		return err
	}
	switch {
	case !d.over():
		return nil
	case d.Won:
		return d.win(ctx, tx)
	}
	if err := ds.lose(ctx, tx, d, t, share); err != nil {
		return err
	}
	d.row.Tax = share
	return d.close(ctx, tx, "lost", max(0, d.row.Amount-share-d.row.Held), card)
}

// openTopupDispute stores a new dispute of a top-up, share of which is tax.
func openTopupDispute(ctx context.Context, tx *db.Tx, d *lockedDispute, t dbq.Topup,
	share money.Nano) error {
	paid := t.CreatedAt
	if t.SettledAt != nil {
		paid = *t.SettledAt
	}
	amount := money.Nano(d.Cents) * money.Cent
	in := dbq.InsertDisputeParams{
		OrgID:    t.OrgID,
		TopupID:  t.ID,
		Amount:   amount,
		Currency: t.Currency,
		PaidAt:   paid,
		Tax:      share,
	}
	if err := d.open(ctx, tx, in, amount-share, "a payment is disputed"); err != nil {
		return err
	}
	return d.opened(ctx, tx, notify.Notice{
		Title: fmt.Sprintf("A payment of %s %s is disputed", (t.Amount + t.Tax).Plain(), t.Currency),
		Body: fmt.Sprintf("The card's bank gives this reason: %s. Until the dispute is decided, the disputed amount is "+
			"set aside from your balance and from credit that is added later.", strings.ReplaceAll(d.Reason, "_", " ")),
	})
}

// lose books the end of a dispute that was decided for the card's owner: its tax is owed no more, and what
// neither that nor the wallet covered is bad debt.
func (ds *Disputes) lose(ctx context.Context, tx *db.Tx, d *lockedDispute, t dbq.Topup, share money.Nano) error {
	e := d.entry("lost", "what no wallet covered")
	e.Ref = d.ref
	if share > 0 {
		e.Transfers = append(e.Transfers, ledger.Transfer{
			Debit:  ledger.TaxPayable(t.Currency),
			Credit: d.aside,
			Amount: share,
		})
	}
	switch rest := d.row.Amount - share - d.row.Held; {
	case rest > 0:
		e.Transfers = append(e.Transfers, ledger.Transfer{Debit: ledger.BadDebt(t.Currency), Credit: d.aside, Amount: rest})
	case rest < 0: // more was set aside than was due: a refund under way failed meanwhile, and more of it is tax
		e.Transfers = append(e.Transfers, d.back(-rest)...)
	}
	if len(e.Transfers) > 0 {
		if booked, err := d.accounts.Post(ctx, e); err != nil || !booked {
			return err
		}
	}
	return ds.taxes.record(ctx, tx, t, taxEntry{tax.DisputeLost, e.Key, t.ID.String(), share - d.row.Amount, -share})
}

// taxInDispute returns how much of what is disputed is tax, by what has gone back of the payment so far. It is computed
// again when the dispute is over, because refunds may have failed meanwhile.
func taxInDispute(ctx context.Context, tx *db.Tx, t dbq.Topup, dispute string, amount money.Nano) (money.Nano, error) {
	gone, err := tx.Q.GoneBack(ctx, t.ID, dispute)
	if err != nil {
		return 0, fmt.Errorf("read top-up %s: %w", t.ID, err)
	}
	before, back := gone.Amount+gone.Tax, gone.Tax
	// Stripe refunds no more than was paid: if there is no room for the refunds under way, it has refused them.
	if waiting := gone.Waiting + gone.WaitingTax; before+waiting+int64(amount) <= int64(t.Amount+t.Tax) {
		before, back = before+waiting, back+gone.WaitingTax
	}
	return min(amount, taxBack(t.Amount+t.Tax, t.Tax, money.Nano(before), amount, money.Nano(back))), nil
}

const (
	disputeOpen = "open"

	kindDispute = "dispute"
	kindGiven   = "refund" // made at Stripe by an admin
)

// bookDisputeMoves books each change of Stripe's balance for a dispute once, under the change's own id, and its fee.
func bookDisputeMoves(ctx context.Context, d *lockedDispute, currency string) error {
	clearing := ledger.StripeClearing(currency)
	for _, m := range d.Moves {
		from, to, n := clearing, d.aside, money.Nano(m.Cents)*money.Cent
		if n < 0 {
			from, to, n = to, from, -n
		}
		e := ledger.Entry{Kind: "dispute_funds", Key: reconcile.BalanceKey(m.ID), Memo: d.ID}
		if err := d.post(ctx, e, from, to, n); err != nil {
			return err
		}
		if e, any := reconcile.FeeEntry(m, d.ref); any {
			if _, err := d.accounts.Post(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// lockedDispute is a dispute at Stripe with its row and the accounts that it moves, locked.
type lockedDispute struct {
	stripe.Dispute
	row           dbq.Dispute
	fresh         bool // no row is stored yet: the dispute is new
	accounts      *ledger.Locked
	ref           string // of the ledger's entries: the top-up or the org
	wallet, aside ledger.Account
}

// post books a transfer for the dispute. An amount of 0 books nothing.
func (d *lockedDispute) post(ctx context.Context, e ledger.Entry, debit, credit ledger.Account,
	amount money.Nano) error {
	if amount == 0 {
		return nil
	}
	return d.move(ctx, e, []ledger.Transfer{{Debit: debit, Credit: credit, Amount: amount}})
}

// move books transfers for the dispute, if there are any.
func (d *lockedDispute) move(ctx context.Context, e ledger.Entry, transfers []ledger.Transfer) error {
	if len(transfers) == 0 {
		return nil
	}
	e.Ref, e.Transfers = d.ref, transfers
	_, err := d.accounts.Post(ctx, e)
	return err
}

// back returns the transfers that give an amount of what was set aside back: to the wallet what came out of it, and
// the rest, which was retained from earnings, to the bond.
func (d *lockedDispute) back(amount money.Nano) []ledger.Transfer {
	toWallet := min(amount, d.row.Held-d.row.HeldBond)
	return some(ledger.Transfer{Debit: d.aside, Credit: d.wallet, Amount: toWallet},
		ledger.Transfer{Debit: d.aside, Credit: ledger.HostBond(d.wallet.Org, d.wallet.Currency), Amount: amount - toWallet})
}

// entry returns an entry of the dispute: its kind is dispute_STEP, its key dispute:ID:STEP.
func (d *lockedDispute) entry(step, memo string) ledger.Entry {
	return ledger.Entry{Kind: "dispute_" + step, Key: "dispute:" + d.ID + ":" + step, Memo: memo}
}

// lockDispute locks the row of a dispute, if it is stored.
func lockDispute(ctx context.Context, tx *db.Tx, id string) (row dbq.Dispute, fresh bool, err error) {
	row, err = tx.Q.DisputeForUpdate(ctx, id)
	if fresh = db.NoRows(err); err != nil && !fresh {
		return row, false, fmt.Errorf("lock dispute %s: %w", id, err)
	}
	return row, fresh, nil
}

// open stores a new dispute and sets as much of the org's own money aside as there is, at most limit. memo describes
// what is disputed.
func (d *lockedDispute) open(ctx context.Context, tx *db.Tx, in dbq.InsertDisputeParams, limit money.Nano,
	memo string) error {
	has := max(0, d.accounts.Balance(d.wallet)-d.accounts.Reserved(d.wallet)) // an org's credit is not its money
	take, err := takeClaim(ctx, tx, d.accounts, d.wallet, has, limit)
	if err != nil {
		return err
	}
	in.Held, in.HeldBond = take.sum(), take.earned
	in.ID, in.Reason, in.Kind = d.ID, d.Reason, kindDispute
	if _, err := tx.Q.InsertDispute(ctx, in); err != nil {
		return fmt.Errorf("insert dispute %s: %w", d.ID, err)
	}
	d.row = dbq.Dispute{
		ID:       d.ID,
		OrgID:    in.OrgID,
		Amount:   in.Amount,
		Held:     in.Held,
		HeldBond: in.HeldBond,
		Currency: in.Currency,
		State:    disputeOpen,
	}
	return d.move(ctx, ledger.Entry{Kind: "dispute", Key: "dispute:" + d.ID + ":opened", Memo: memo},
		take.to(d.wallet, d.aside))
}

// opened notifies the org with n of a dispute that was stored, stops auto top-up, because its card's owner takes
// payments back, and updates what the org may do.
func (d *lockedDispute) opened(ctx context.Context, tx *db.Tx, n notify.Notice) error {
	org := d.row.OrgID
	if err := stopAuto(ctx, tx, org, "A payment is disputed."); err != nil {
		return err
	}
	n.Org, n.Key, n.Severity, n.Object = org, "dispute:"+d.ID, notify.Bad, org.String()
	if _, err := notify.Add(ctx, tx, n); err != nil {
		return err
	}
	if err := reserve(ctx, tx, d.accounts, d.wallet); err != nil {
		return err
	}
	return updateStanding(ctx, tx, org)
}

// over reports whether the dispute was decided and its end is not booked yet.
func (d *lockedDispute) over() bool { return !d.Open && d.row.State == disputeOpen }

// win returns what was set aside to where it came from.
func (d *lockedDispute) win(ctx context.Context, tx *db.Tx) error {
	if err := d.move(ctx, d.entry("won", "the dispute was decided for you"), d.back(d.row.Held)); err != nil {
		return err
	}
	return d.close(ctx, tx, "won", 0, "")
}

// close stores the end of a dispute and what follows from it for its org. debt is what the dispute cost that nothing
// covered; card is the fingerprint of the card to block, "" for none.
func (d *lockedDispute) close(ctx context.Context, tx *db.Tx, state string, debt money.Nano, card string) error {
	row := d.row
	if err := tx.Q.CloseDispute(ctx, state, row.Tax, row.ID); err != nil {
		return fmt.Errorf("close dispute %s: %w", row.ID, err)
	}
	if debt > 0 {
		if err := tx.Q.SetDisputeDebt(ctx, debt, row.ID); err != nil {
			return fmt.Errorf("set debt of dispute %s: %w", row.ID, err)
		}
	}
	if card != "" {
		if err := tx.Q.BlockCard(ctx, card, row.ID); err != nil {
			return fmt.Errorf("block the card of dispute %s: %w", row.ID, err)
		}
	}
	if err := reserve(ctx, tx, d.accounts, d.wallet); err != nil {
		return err
	}
	return updateStanding(ctx, tx, row.OrgID)
}
