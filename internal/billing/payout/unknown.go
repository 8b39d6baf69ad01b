package payout

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe"
)

// refuseUnknown refuses a transfer while Stripe has made one to the same account, for a payout of this platform, that
// this database does not have. Then the database has lost commits, usually by a restore to an earlier moment, and what
// it is about to pay may be paid already. The row waits and is tried again; admins are notified.
func (p *Payouts) refuseUnknown(ctx context.Context, client *stripe.Client, ours id.Payout, acct string) error {
	made, err := client.TransfersTo(ctx, acct)
	if err != nil {
		return err
	}
	for _, t := range made {
		of, err := id.Parse[id.Payout](t.Payout)
		if err != nil {
			continue // made by hand: the reconciliation reports it
		}
		_, err = p.d.Q.Payout(ctx, of)
		if err == nil {
			continue
		}
		if !db.NoRows(err) {
			return fmt.Errorf("read payout %s: %w", of, err)
		}
		p.log.ErrorContext(ctx, "Stripe has made a transfer that the database does not know; nothing is paid to the account",
			"payout", ours, "transfer", t.ID, "account", acct)
		if err := p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			return notify.AddForAdmins(ctx, tx, notify.Notice{
				Key:      "unknown_transfer:" + t.ID,
				Severity: notify.Bad,
				Object:   ours.String(),
				Title:    "A payout waits: Stripe has made a transfer that the database does not know",
				Body: fmt.Sprintf("Transfer %s of %d cents to %s names payout %s, which is not in the database. It was probably "+
					"restored to an earlier moment, and "+
					"the operator would be paid twice. Nothing is sent to this account. See the operations manual, Backup and "+
					"restore.", t.ID, t.Cents, acct, t.Payout),
			})
		}); err != nil {
			return err
		}
		return &stripe.Error{
			Outcome: stripe.Later,
			Code:    "unknown_transfer",
			Message: "a transfer to the account is not in the database",
		}
	}
	return nil
}
