package postpaid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

const batchOrgs = 200

// Charge bills what orgs used on credit since they were last billed, once in every hour of the clock, and returns how
// many orgs it processed. Run it every minute or so, on any replica.
func (p *Postpaid) Charge(ctx context.Context) (n int, err error) {
	due, err := p.d.Q.ClaimPostpaidCharges(ctx, batchOrgs)
	if err != nil {
		return 0, fmt.Errorf("claim charges that are due: %w", err)
	}
	var errs []error
	for _, org := range due {
		if ctx.Err() != nil {
			break
		}
		if err := p.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			return p.chargeHourly(ctx, tx, org)
		}); err != nil {
			errs = append(errs, fmt.Errorf("charge %s: %w", org, err), p.chargeFailed(ctx, org, err))
			continue
		}
		errs = append(errs, notify.DropDeadLetter(ctx, p.d.Q, queueCharges, org.String()))
		n++
	}
	return n, errors.Join(errs...)
}

// queueCharges names orgs that cannot be charged among the dead letters.
const queueCharges = "postpaid_charge"

// chargeFailed has an org that could not be charged charged again later.
func (p *Postpaid) chargeFailed(ctx context.Context, org id.Org, why error) error {
	wait, err := notify.DeadLetter(ctx, p.d, queueCharges, org.String(), why)
	if err != nil {
		return err
	}
	return p.d.Q.PostponePostpaidCharge(ctx, wait.Seconds(), org)
}

func (p *Postpaid) chargeHourly(ctx context.Context, tx *db.Tx, org id.Org) error {
	a, err := p.lock(ctx, tx, org)
	if err != nil {
		return err
	}
	if a.row.State == string(Off) || a.row.ChargedAt != nil && !a.row.ChargedAt.Before(a.now.Truncate(time.Hour)) {
		return nil // another replica was here
	}
	if err := p.charge(ctx, tx, a); err != nil {
		return err
	}
	return p.wrapUp(ctx, tx, a)
}

// charge bills what is used and not billed, and lends what the terms leave then. The account is locked.
func (p *Postpaid) charge(ctx context.Context, tx *db.Tx, a *acct) error {
	// After the wallet's lock: meanwhile holds only fall, by usage.
	have, err := ledger.OrgBalances(ctx, tx.Q, a.row.OrgID, a.row.Currency)
	if err != nil {
		return err
	}
	if used := unbilled(a.locked.Balance(a.wallet()), have.Held); used > 0 {
		if err := p.bookCharge(ctx, tx, a, used); err != nil {
			return err
		}
	}
	a.row.ChargedAt = &a.now
	if err := tx.Q.SetPostpaidCharged(ctx, dbq.SetPostpaidChargedParams{
		Charges: a.row.Charges,
		Charged: a.row.Charged,
		At:      a.now,
		OrgID:   a.row.OrgID,
	}); err != nil {
		return fmt.Errorf("set charged of %s: %w", a.row.OrgID, err)
	}
	return a.lend(ctx)
}

// bookCharge moves what was used on credit to the receivable, and reports it to Stripe's meter.
func (p *Postpaid) bookCharge(ctx context.Context, tx *db.Tx, a *acct, used money.Nano) error {
	before := a.row.Charged
	a.row.Charges++
	a.row.Charged += used
	key := fmt.Sprintf("postpaid:%s:%d", a.row.OrgID, a.row.Charges)
	if err := a.postNew(ctx, ledger.Entry{
		Kind:      "postpaid",
		Key:       key,
		Ref:       a.row.OrgID.String(),
		Memo:      "used on credit, to be invoiced",
		Transfers: []ledger.Transfer{{Debit: a.receivable(), Credit: a.wallet(), Amount: used}},
	}); err != nil {
		return err
	}
	ids, err := ledger.TransferIDs(ctx, tx.Q, key)
	if err != nil || len(ids) != 1 {
		return fmt.Errorf("%d transfers of %s: %w", len(ids), key, err)
	}
	metered := micros(before, a.row.Charged)
	if err := tx.Q.InsertPostpaidCharge(ctx, dbq.InsertPostpaidChargeParams{
		OrgID:      a.row.OrgID,
		N:          a.row.Charges,
		At:         a.now,
		Amount:     used,
		Charged:    a.row.Charged,
		Micro:      metered,
		TransferID: ids[0],
	}); err != nil {
		return fmt.Errorf("insert charge of %s: %w", a.row.OrgID, err)
	}
	if metered <= 0 {
		return nil
	}
	rows, err := p.pay.ReportUsage(ctx, tx, a.row.OrgID, ids[0].String(), metered, a.now)
	if err != nil {
		return err
	}
	p.sendAfter(ctx, tx, rows)
	return nil
}

// unbilled returns what an org used beyond its own money and was not billed: what wallet and holds are short of
// together.
func unbilled(wallet, held money.Nano) money.Nano { return max(0, -(wallet + held)) }

// micros returns what a meter of whole micro-units receives when the charges grow: the growth of their floor, so that
// nothing drifts.
func micros(before, after money.Nano) money.Micro { return money.Micro(after/1000 - before/1000) }

// sendAfter sends rows to Stripe once they are committed; what cannot be sent then is left to the outbox.
func (p *Postpaid) sendAfter(ctx context.Context, tx *db.Tx, rows []id.Outbox) {
	if len(rows) > 0 {
		tx.AfterCommit(func() { p.out.SendNow(ctx, rows) })
	}
}
