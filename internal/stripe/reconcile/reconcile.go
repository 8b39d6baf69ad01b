// Package reconcile compares Stripe's balance with the ledger.
//
// Invariants:
//   - Every change of Stripe's balance is matched to one ledger entry of the same amount in stripe_clearing, found by
//     its key. An entry matches one change at most.
//   - What only Stripe knows, its fees and payouts to the platform's bank, is booked from the change itself.
//   - A change that no entry explains within an hour goes to the suspense account, and admins are notified. If its
//     entry appears later, the amount comes back from there.
//   - A window of Stripe's list counts as read once it was read to its end.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
)

const (
	// matchFor is how long a change of Stripe's balance waits for its entry: webhook and poller are far quicker.
	matchFor = time.Hour
	// overlap is how far back each reading begins before what was read completely: Stripe's list is by second, and a
	// change may be listed late.
	overlap = 24 * time.Hour
	// window is how much is read at a time, oldest first. What is stored of it counts as read when it is stored to the
	// end.
	window        = 24 * time.Hour
	readLease     = 2 * time.Minute // longer than a window takes; after a crash another replica waits so long
	reconcileRows = 500
)

// Reconciler compares Stripe's balance with the ledger. It is safe for concurrent use.
type Reconciler struct {
	d        *db.DB
	client   *stripe.Client
	refresh  Refresh
	currency string
	log      *slog.Logger
}

// Refresh reads the present state of an object from Stripe and books it; the note is the reason why there was nothing
// to do.
type Refresh func(ctx context.Context, object string) (note string, err error)

// New returns a reconciler, which calls refresh for the objects of changes that no entry explains.
func New(d *db.DB, client *stripe.Client, refresh Refresh, currency string, log *slog.Logger) *Reconciler {
	return &Reconciler{d: d, client: client, refresh: refresh, currency: currency, log: log}
}

// Result counts what a call of Reconcile did.
type Result struct {
	New, Matched, Suspense int
}

// Reconcile reads every change of Stripe's balance and matches it, one to one, to the ledger entry of the same amount
// in stripe_clearing. What Stripe kept is booked as its fee. Reconcile reads the object of a change that no entry
// matches from Stripe (so a lost webhook costs minutes). If that does not help in time, the change goes to the suspense
// account, and admins are notified; if its entry appears later, it comes back from there. Run Reconcile every few
// minutes, on any number of replicas.
func (r *Reconciler) Reconcile(ctx context.Context) (did Result, err error) {
	if did.New, err = r.readBalance(ctx); err != nil {
		return did, fmt.Errorf("read Stripe's balance: %w", err)
	}
	open, err := r.d.Q.OpenBalanceTxs(ctx, reconcileRows)
	if err != nil {
		return did, fmt.Errorf("open changes: %w", err)
	}
	var errs []error
	for _, b := range open {
		state, err := r.match(ctx, b.ID)
		if state == "waiting" && err == nil {
			// No event has announced it yet: read its object.
			if _, err = r.refresh(ctx, objectOf(b)); err == nil {
				state, err = r.match(ctx, b.ID)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("match %s: %w", b.ID, err))
		}
		switch state {
		case "matched", "resolved":
			did.Matched++
		case "suspense":
			did.Suspense++
		}
	}
	return did, errors.Join(errs...)
}

// readBalance stores the changes of Stripe's balance that are not known yet and returns how many. Stripe lists the
// newest first, so a reading that fails in the middle has a gap before what it stored: the mark moves only over windows
// that were read to the end. One replica reads at a time; to the others nothing is new.
func (r *Reconciler) readBalance(ctx context.Context) (n int, err error) {
	lease, err := r.d.Q.LeaseStripeRead(ctx, readLease.Seconds())
	if db.NoRows(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, r.d.Q.EndStripeRead(context.WithoutCancel(ctx)))
	}()
	for from := lease.Through.Add(-overlap); from.Before(lease.Now); from = from.Add(window) {
		until := from.Add(window)
		if !until.Before(lease.Now) {
			until = lease.Now.Add(stripe.ClockSkew) // the newest, even if Stripe's clock is ahead
		}
		if err := r.client.BalanceTxs(ctx, from, until, func(b stripe.BalanceTx) error {
			did, err := r.storeBalanceTx(ctx, b)
			n += did
			return err
		}); err != nil {
			return n, err
		}
		if until.After(lease.Now) {
			until = lease.Now
		}
		if err := r.d.Q.AdvanceStripeRead(ctx, until, readLease.Seconds()); err != nil {
			return n, err
		}
	}
	return n, r.compareFunds(ctx)
}

func (r *Reconciler) storeBalanceTx(ctx context.Context, b stripe.BalanceTx) (n int, err error) {
	amount, err := stripe.FromCents(b.Cents)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", b.ID, err)
	}
	fee, err := stripe.FromCents(b.FeeCents)
	if err != nil {
		return 0, fmt.Errorf("the fee of %s: %w", b.ID, err)
	}
	did, err := r.d.Q.InsertBalanceTx(ctx, dbq.InsertBalanceTxParams{ID: b.ID, Type: b.Type, Source: b.Source,
		Amount: amount, Fee: fee, Currency: b.Currency, Keys: entryKeys(b), At: b.CreatedAt})
	return int(did), err
}

// entryKeys returns the keys that the ledger entry of a change may have, most likely first.
func entryKeys(b stripe.BalanceTx) []string {
	keys := []string{BalanceKey(b.ID)}
	add := func(kind, object string) {
		if object != "" {
			keys = append(keys, kind+":"+object)
		}
	}
	switch b.Type {
	case "charge", "payment":
		if b.Invoice != "" {
			return append(keys, InvoiceKey(b.Invoice))
		}
		add("topup", b.Payment)
	case "refund", "payment_refund":
		add("refund", b.Source)
	case "refund_failure", "payment_failure_refund":
		add("refund_failed", b.Source)
	case "transfer_refund":
		add("transfer_refund", b.Source)
		add("transfer", b.Transfer) // never has this amount, but names the object to refresh
	default:
		add(b.Type, b.Source) // transfer:tr_…, transfer_refund:…, payout:po_…
	}
	return keys
}

// objectOf is Stripe's object that a change is about: a charge's payment or invoice, a reversal's transfer, else its
// source.
func objectOf(b dbq.OpenBalanceTxsRow) string {
	for _, k := range b.Keys {
		for _, kind := range []string{"topup:", "transfer:", InvoiceKey("")} {
			if object, ok := strings.CutPrefix(k, kind); ok {
				return object
			}
		}
	}
	return b.Source
}

// match looks for the entry of one change and books what follows from finding it, or from not finding it in time.
func (r *Reconciler) match(ctx context.Context, txn string) (state string, err error) {
	err = r.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		b, err := tx.Q.BalanceTxForUpdate(ctx, matchFor.Seconds(), txn)
		if err != nil {
			return err
		}
		if state = b.State; state != "waiting" && state != "suspense" {
			return nil
		}
		if state == "waiting" {
			if err := r.bookOwn(ctx, tx, b); err != nil {
				return err
			}
		}
		found, err := tx.Q.ClearingByKey(ctx, b.Keys, b.Currency)
		if err != nil {
			return err
		}
		for _, f := range found {
			if f.Amount != -int64(b.Amount) { // clearing is an asset: what came in is a debit
				continue
			}
			if state == "suspense" {
				if err := r.suspend(ctx, tx, b, true); err != nil {
					return err
				}
				state = "resolved"
			} else {
				state = "matched"
			}
			return tx.Q.SetBalanceTx(ctx, state, f.Key, txn)
		}
		if state == "suspense" || !b.Late {
			return nil
		}
		r.log.ErrorContext(ctx, "a change of Stripe's balance has no ledger entry and was booked to suspense", "change", b.ID,
			"type", b.Type,
			"source", b.Source, "amount", b.Amount.String(), "currency", b.Currency)
		if state = "suspense"; b.Amount != 0 {
			if err := r.suspend(ctx, tx, b, false); err != nil {
				return err
			}
		}
		if err := notifySuspense(ctx, tx, b); err != nil {
			return err
		}
		return tx.Q.SetBalanceTx(ctx, state, "", txn)
	})
	return state, err
}

// bookOwn books what only Stripe knows: its fee, and money it has paid out to the platform's own bank account.
func (r *Reconciler) bookOwn(ctx context.Context, tx *db.Tx, b dbq.BalanceTxForUpdateRow) error {
	var entries []ledger.Entry
	cents := func(n money.Nano) int64 { return int64(n / money.Cent) }
	s := stripe.BalanceTx{ID: b.ID, Type: b.Type, FeeCents: cents(b.Fee), Currency: b.Currency}
	if e, any := FeeEntry(s, ""); any {
		entries = append(entries, e)
	}
	other := ledger.Account{}
	switch {
	case b.Amount == 0:
	case b.Type == "stripe_fee" || b.Type == "network_cost":
		other = ledger.StripeFees(b.Currency)
	case strings.HasPrefix(b.Type, "payout"):
		other = ledger.Bank(b.Currency)
	}
	if other.Kind != "" {
		x := ledger.Transfer{Debit: other, Credit: ledger.StripeClearing(b.Currency), Amount: -b.Amount}
		if b.Amount > 0 {
			x = ledger.Transfer{Debit: x.Credit, Credit: x.Debit, Amount: b.Amount}
		}
		entries = append(entries, ledger.Entry{
			Kind:      "stripe_" + b.Type,
			Key:       BalanceKey(b.ID),
			Memo:      b.Source,
			Transfers: []ledger.Transfer{x},
		})
	}
	_, err := ledger.PostAll(ctx, tx, entries)
	return err
}

// suspend moves an unexplained change to the suspense account; back: from there, now that its entry is there.
func (r *Reconciler) suspend(ctx context.Context, tx *db.Tx, b dbq.BalanceTxForUpdateRow, back bool) error {
	x := ledger.Transfer{Debit: ledger.StripeClearing(b.Currency), Credit: ledger.Suspense(b.Currency), Amount: b.Amount}
	key := "suspense:" + b.ID
	if b.Amount < 0 {
		x = ledger.Transfer{Debit: x.Credit, Credit: x.Debit, Amount: -b.Amount}
	}
	if back {
		x.Debit, x.Credit, key = x.Credit, x.Debit, key+":resolved"
	}
	if b.Amount == 0 {
		return nil
	}
	_, err := ledger.Post(ctx, tx, ledger.Entry{
		Kind:      "stripe_suspense",
		Key:       key,
		Memo:      b.Type + " " + b.Source,
		Transfers: []ledger.Transfer{x},
	})
	return err
}

// Reconciliation compares Stripe with the ledger, for admins. Fault: Forbidden.
func (r *Reconciler) Reconciliation(ctx context.Context, who account.Principal) (client.Reconciliation, error) {
	out := client.Reconciliation{Currency: r.currency, Open: []client.StripeChange{}, Unproven: []client.Unproven{}}
	if err := account.RequireStaff(who); err != nil {
		return out, err
	}
	t, err := r.d.Q.ReconcileTotals(ctx, r.currency)
	if err != nil {
		return out, fmt.Errorf("reconciliation: %w", err)
	}
	clearing, err := ledger.Balance(ctx, r.d.Q, ledger.StripeClearing(r.currency))
	if err != nil {
		return out, err
	}
	out.Stripe, out.Clearing, out.Matched, out.Waiting, out.Suspense = money.Nano(t.Stripe), -clearing, t.Matched,
		t.Waiting, t.Suspense
	out.Difference = out.Stripe - out.Clearing
	if out.Funds, err = r.funds(ctx, out.Clearing); err != nil {
		return out, err
	}
	open, err := r.d.Q.ListOpenBalanceTxs(ctx, 100)
	if err != nil {
		return out, fmt.Errorf("reconciliation: %w", err)
	}
	for _, b := range open {
		out.Open = append(out.Open, client.StripeChange{
			ID:     b.ID,
			Type:   b.Type,
			Source: b.Source,
			Amount: b.Amount,
			State:  b.State,
			At:     b.At,
		})
	}
	lost, err := r.d.Q.UnmatchedClearing(ctx, matchFor.Seconds(), 100)
	if err != nil {
		return out, fmt.Errorf("reconciliation: %w", err)
	}
	for _, x := range lost {
		out.Unproven = append(out.Unproven, client.Unproven{
			Key:    x.Key,
			Kind:   x.Kind,
			Ref:    x.Ref,
			Amount: money.Nano(-x.Amount),
			At:     x.CreatedAt,
		})
	}
	return out, nil
}

// notifySuspense notifies admins of a change of Stripe's balance that nothing in the ledger explains; only of the first
// of a day (UTC), because a first reading may find many.
func notifySuspense(ctx context.Context, tx *db.Tx, b dbq.BalanceTxForUpdateRow) error {
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	return notify.AddForAdmins(ctx, tx, notify.Notice{
		Key:      "stripe_suspense:" + now.Format(time.DateOnly),
		Severity: notify.Bad,
		Title:    "A change of Stripe's balance has no ledger entry",
		Body: fmt.Sprintf("%s %s %s by %s (%s) still has no ledger entry after an hour and was booked to suspense. It "+
			"may be a charge or a refund that someone made by hand at Stripe. The reconciliation lists all such changes; "+
			"you will not be notified of further ones today.", b.Amount, b.Currency, b.ID,
			b.Source, b.Type),
	})
}
