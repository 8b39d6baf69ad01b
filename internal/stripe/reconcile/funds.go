package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
)

// fundsPatience is how long Stripe's balance may differ from the changes that were read before administrators are
// notified: Stripe lists some changes late, and some happen between the two reads.
const fundsPatience = 30 * time.Minute

// compareFunds reads what Stripe holds and stores it with the sum of the changes that were read. Call it after a
// complete reading; it matches nothing. Admins are notified when the two differ for fundsPatience.
func (r *Reconciler) compareFunds(ctx context.Context) error {
	all, err := r.client.Funds(ctx)
	if err != nil {
		return fmt.Errorf("read the balance at Stripe: %w", err)
	}
	for _, f := range all {
		if err := r.storeFunds(ctx, f); err != nil {
			return fmt.Errorf("store the balance at Stripe in %s: %w", f.Currency, err)
		}
	}
	return nil
}

func (r *Reconciler) storeFunds(ctx context.Context, f stripe.Funds) error {
	var amounts [3]money.Nano
	for i, cents := range []int64{f.Available, f.Pending, f.Reserved} {
		n, err := stripe.FromCents(cents)
		if err != nil {
			return err
		}
		amounts[i] = n
	}
	return r.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		read, err := tx.Q.BalanceReadSum(ctx, f.Currency)
		if err != nil {
			return err
		}
		tell, err := tx.Q.PutStripeFunds(ctx, dbq.PutStripeFundsParams{
			Currency:  f.Currency,
			Available: int64(amounts[0]),
			Pending:   int64(amounts[1]),
			Reserved:  int64(amounts[2]),
			Read:      read,
			Off:       int64(amounts[0]+amounts[1]) != read,
			PatienceS: fundsPatience.Seconds(),
		})
		if err != nil || !tell {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		if err := notify.AddForAdmins(ctx, tx, notify.Notice{
			Key:      "stripe_funds:" + f.Currency + ":" + now.Format(time.DateOnly),
			Severity: notify.Bad,
			Title:    "Stripe's balance differs from the sum of its changes",
			Body: fmt.Sprintf("Stripe reports a balance of %s %s, available and pending. The changes of its balance that "+
				"were read add up to %s. The difference has lasted for half an hour. If the account held money before Muster "+
				"used it, that is the difference. Otherwise check Stripe's dashboard, and pause the sending of money until "+
				"you know the cause.",
				(amounts[0] + amounts[1]).Plain(), f.Currency, money.Nano(read).Plain()),
		}); err != nil {
			return err
		}
		return tx.Q.ToldStripeFunds(ctx, f.Currency)
	})
}

// funds returns what Stripe last held in the platform's currency, compared with the ledger; nil if it was not read yet.
func (r *Reconciler) funds(ctx context.Context, books money.Nano) (*client.StripeFunds, error) {
	f, err := r.d.Q.StripeFunds(ctx, r.currency)
	if db.NoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Stripe's balance: %w", err)
	}
	held := money.Nano(f.Available + f.Pending)
	out := &client.StripeFunds{
		Available: money.Nano(f.Available),
		Pending:   money.Nano(f.Pending),
		Reserved:  money.Nano(f.Reserved),
		ReadAt:    f.AskedAt,
		Unread:    held - money.Nano(f.Read),
		Unbooked:  held - books,
		OffSince:  f.OffSince,
	}
	out.Wrong = f.OffSince != nil && f.AskedAt.Sub(*f.OffSince) >= fundsPatience
	return out, nil
}
