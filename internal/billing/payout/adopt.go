package payout

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe"
)

// AdoptTransfer books a transfer that a restored database may have lost, by its state at Stripe. Its payout is created
// again under the same id, so that any number of calls books it once. Its money is taken from what is payable, and the
// rest from what is pending, which may fall below zero until usage that was lost is reported and booked again.
func (p *Payouts) AdoptTransfer(ctx context.Context, object string,
	record payment.RecordAdopted) (out payment.Adopted, err error) {
	t, err := p.out.Client().Transfer(ctx, object)
	if e := stripe.As(err); e != nil && e.Outcome == stripe.Missing {
		return payment.Adopted{Outcome: payment.Foreign, Note: "Stripe does not know it"}, nil
	}
	if err != nil {
		return out, fmt.Errorf("adopt %s: %w", object, err)
	}
	ours, err := id.Parse[id.Payout](t.Payout)
	if err != nil {
		return payment.Adopted{Outcome: payment.Foreign, Note: "not a payout of this platform"}, nil
	}
	err = p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		out = payment.Adopted{Outcome: payment.Known}
		before, err := tx.Q.PayoutForUpdate(ctx, ours)
		if db.NoRows(err) {
			org, known := id.Org{}, error(nil)
			if org, known = tx.Q.PayoutAccountOfStripe(ctx, &t.Account); db.NoRows(known) {
				out = payment.Adopted{Outcome: payment.Open, Note: "no organisation in the database has account " + t.Account +
					": it was set up after the backup. Connect it again, or reverse the transfer at Stripe"}
				return nil
			}
			if known != nil {
				return known
			}
			err = p.insertLost(ctx, tx, ours, org, t)
		}
		if err != nil {
			return err
		}
		if err := p.settle(ctx, tx, ours, t); err != nil {
			return err
		}
		after, err := tx.Q.Payout(ctx, ours)
		if err != nil {
			return err
		}
		if out.Org = after.OrgID; before.State == after.State && before.Reversed == after.Reversed {
			return nil
		}
		out.Outcome, out.Note = payment.Booked, "payout "+ours.String()+" is "+after.State
		if record == nil {
			return nil
		}
		return record(ctx, tx, out)
	})
	if err != nil {
		return out, fmt.Errorf("adopt %s: %w", object, err)
	}
	return out, nil
}

// insertLost writes a payout again, as decide does.
func (p *Payouts) insertLost(ctx context.Context, tx *db.Tx, ours id.Payout, org id.Org, t stripe.Transfer) error {
	if _, err := tx.Q.PayoutAccountForUpdate(ctx, org); err != nil {
		return err
	}
	amount := money.Nano(t.Cents) * money.Cent
	pending, payable, way := ledger.HostPending(org, t.Currency), ledger.HostPayable(org, t.Currency),
		ledger.Transfers(t.Currency)
	books, err := ledger.Lock(ctx, tx, pending, payable, way, ledger.StripeClearing(t.Currency))
	if err != nil {
		return err
	}
	if err := tx.Q.InsertPayout(ctx, dbq.InsertPayoutParams{
		ID:            ours,
		OrgID:         org,
		StripeAccount: t.Account,
		Amount:        amount,
		Currency:      t.Currency,
	}); err != nil {
		return fmt.Errorf("insert payout %s: %w", ours, err)
	}
	due := min(amount, max(0, books.Balance(payable)))
	var legs []ledger.Transfer
	for _, x := range []ledger.Transfer{{
		Debit:  payable,
		Credit: way,
		Amount: due,
	}, {Debit: pending, Credit: way, Amount: amount - due}} {
		if x.Amount > 0 {
			legs = append(legs, x)
		}
	}
	_, err = books.Post(ctx, ledger.Entry{
		Kind:      "payout",
		Key:       "payout:" + ours.String() + ":asked",
		Ref:       ours.String(),
		Memo:      "to your account at Stripe",
		Transfers: legs,
	})
	return err
}
