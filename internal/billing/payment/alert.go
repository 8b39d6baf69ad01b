package payment

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
)

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
		Title:    "Stripe's balance changed and the books do not know why",
		Body: fmt.Sprintf("%s %s %s by %s (%s) has no entry after an hour and is in suspense: perhaps a charge or refund "+
			"that somebody made by hand at Stripe. "+
			"The reconciliation lists it and any others; further ones of today are not told again.", b.Amount, b.Currency, b.ID,
			b.Source, b.Type),
	})
}

// notifyRefused notifies admins of a refused webhook, once per reason and day (UTC), because anyone may send any number
// of them. The cause is a forgery, or a secret or clock of ours that is wrong; then Stripe confirms no payment.
func (p *Payments) notifyRefused(ctx context.Context, r *stripe.Refused) error {
	today := time.Now().UTC().Format(time.DateOnly)
	if told, _ := p.refusedNotified.Load(r.Reason); told == today {
		return nil
	}
	p.log.WarnContext(ctx, "a Stripe webhook was refused", "reason", r.Reason, "error", r)
	err := p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return notify.AddForAdmins(ctx, tx, notify.Notice{
			Key:      "webhook_refused:" + r.Reason + ":" + today,
			Severity: notify.Warn,
			Title:    "A delivery to Stripe's webhook was refused",
			Body: fmt.Sprintf("A delivery was refused: %s. Nothing was taken from it and no money moved. Either it is not "+
				"Stripe's, or the signing "+
				"secret here is not that of the endpoint, or a clock is wrong: see the deliveries of the endpoint at Stripe. "+
				"Until that is "+
				"mended, payments are confirmed by asking Stripe, which is slower. Further ones refused today for this reason "+
				"are not told again.", r),
		})
	})
	if err != nil {
		return err
	}
	p.refusedNotified.Store(r.Reason, today)
	return nil
}
