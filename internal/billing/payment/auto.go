package payment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

// AutoTopUps charges the default card of an org with an automatic top-up when the balance falls below its threshold.
type AutoTopUps struct {
	*core
	taxes     *Taxes
	standings *Standings
	topups    *TopUps
}

// AutoTopUp is an org's setting to add credit automatically. It is switched off by the first card that does not pay:
// what a bank refuses once it refuses again, and each refusal makes the next card look worse.
type AutoTopUp = client.AutoTopUp

// Get returns the org's wish; the zero value when it never had one.
func (as *AutoTopUps) Get(ctx context.Context, org id.Org) (AutoTopUp, error) {
	a, err := as.d.Q.AutoTopup(ctx, org)
	if db.NoRows(err) {
		return AutoTopUp{}, nil
	}
	if err != nil {
		return AutoTopUp{}, fmt.Errorf("read auto top-up of %s: %w", org, err)
	}
	return AutoTopUp{
		Enabled:   a.Enabled,
		Threshold: a.Threshold,
		Amount:    a.Amount,
		DailyCap:  a.DailyCap,
		Stopped:   a.Stopped,
	}, nil
}

// Set sets whether and how credit is added automatically. Faults: Invalid; Conflict when there is no card to
// pay with.
func (as *AutoTopUps) Set(ctx context.Context, payer account.Principal, a AutoTopUp) error {
	return as.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		was, err := tx.Q.AutoTopup(ctx, payer.Org)
		switch {
		case err != nil && !db.NoRows(err):
			return fmt.Errorf("read auto top-up of %s: %w", payer.Org, err)
		case !a.Enabled && err != nil:
			return nil // it never was on
		case !a.Enabled:
			a.Threshold, a.Amount, a.DailyCap = was.Threshold, was.Amount, was.DailyCap
		default:
			if err := checkAutoTopUp(a); err != nil {
				return err
			}
			c, err := tx.Q.StripeCustomer(ctx, payer.Org)
			if err != nil && !db.NoRows(err) {
				return fmt.Errorf("read customer: %w", err)
			}
			if c.PaymentMethod == "" && as.cfg.DefaultMethod == "" {
				return fault.New(fault.Conflict, "save a card first: credit is added with it")
			}
		}
		if err := tx.Q.SetAutoTopup(ctx, dbq.SetAutoTopupParams{OrgID: payer.Org, UserID: payer.User, Enabled: a.Enabled,
			Threshold: a.Threshold, Amount: a.Amount, DailyCap: a.DailyCap}); err != nil {
			return fmt.Errorf("set auto top-up: %w", err)
		}
		return audit.Record(ctx, tx, payer.Event("billing.auto_topup", payer.Org.String(), map[string]any{
			"enabled":   a.Enabled,
			"threshold": a.Threshold.String(),
			"amount":    a.Amount.String(),
			"daily_cap": a.DailyCap.String(),
		}))
	})
}

func checkAutoTopUp(a AutoTopUp) error {
	var bad fault.Fields
	if a.Threshold < money.Cent || a.Threshold > MaxTopUp {
		bad.Add("threshold", "must be between %s and %s", money.Cent.Plain(), MaxTopUp.Plain())
	}
	switch {
	case a.Amount < MinTopUp || a.Amount > MaxTopUp:
		bad.Add("amount", "must be between %s and %s", MinTopUp.Plain(), MaxTopUp.Plain())
	case a.Amount%money.Cent != 0:
		bad.Add("amount", "must be whole cents")
	case a.DailyCap < a.Amount:
		bad.Add("daily_cap", "must be at least the amount")
	case a.DailyCap > 10*MaxTopUp:
		bad.Add("daily_cap", "must be at most %s", (10 * MaxTopUp).Plain())
	}
	return bad.Err()
}

// Run adds credit where it is due and returns how often. While sending is paused it adds none. Run it every few
// seconds.
func (as *AutoTopUps) Run(ctx context.Context) (n int, err error) {
	if s, err := outbox.SendingState(ctx, as.d.Q); err != nil || s.Paused {
		return 0, err
	}
	orgs, err := as.d.Q.ClaimAutoTopups(ctx, as.cfg.Currency, batchRows)
	if err != nil {
		return 0, fmt.Errorf("claim due auto top-ups: %w", err)
	}
	var errs []error
	for _, org := range orgs {
		rows, err := as.topUp(ctx, org)
		if err != nil {
			errs = append(errs, fmt.Errorf("top up %s automatically: %w", org, err), as.failed(ctx, org, err))
			continue
		}
		errs = append(errs, notify.DropDeadLetter(ctx, as.d.Q, queueAutoTopUp, org.String()))
		as.out.SendNow(ctx, rows)
		if len(rows) > 0 {
			n++
		}
	}
	return n, errors.Join(errs...)
}

// queueAutoTopUp names auto top-ups that fail among the dead letters.
const queueAutoTopUp = "auto_topup"

// failed postpones the auto top-up of an org for which it failed.
func (as *AutoTopUps) failed(ctx context.Context, org id.Org, why error) error {
	wait, err := notify.DeadLetter(ctx, as.d, queueAutoTopUp, org.String(), why)
	if err != nil {
		return err
	}
	return as.d.Q.SetAutoTopupNext(ctx, wait.Seconds(), org)
}

// capWait is the longest time until an org at its daily cap is checked again. Top-ups that fail free the cap before
// they are a day old.
const capWait = time.Hour

// topUp decides under the lock of the org's auto top-up, so that two replicas do not both pay.
func (as *AutoTopUps) topUp(ctx context.Context, org id.Org) (send []id.Outbox, err error) {
	wish, err := as.Get(ctx, org)
	if err != nil {
		return nil, err
	}
	on, err := as.taxes.on(ctx, org, tax.TopUp, wish.Amount)
	if err != nil {
		return nil, err
	}
	err = as.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		send = nil
		a, err := tx.Q.AutoTopupForUpdate(ctx, org)
		if err != nil {
			return err
		}
		due, err := as.due(ctx, tx, a, wish.Amount)
		if err != nil || !due {
			return err
		}
		if send, err = as.pay(ctx, tx, a, on); err != nil || send == nil {
			return err
		}
		return tx.Q.SetAutoTopupNext(ctx, 0, org) // while the payment is under way the org is not due
	})
	return send, err
}

// due reports whether the org's credit is to be topped up now by amount, for which the tax was determined. If not,
// it stores when to look again, or switches auto top-up off.
func (as *AutoTopUps) due(ctx context.Context, tx *db.Tx, a dbq.AutoTopupForUpdateRow,
	amount money.Nano) (bool, error) {
	now, err := tx.Q.AutoTopupFacts(ctx, pgtype.UUID{Bytes: a.OrgID.UUID(), Valid: true}, as.cfg.Currency)
	if err != nil {
		return false, err
	}
	changed := a.Amount != amount // since the tax was determined
	if !a.Enabled || now.Postpaid || now.Pending > 0 || money.Nano(now.Available) >= a.Threshold || changed {
		return false, tx.Q.SetAutoTopupNext(ctx, 0, a.OrgID)
	}
	if money.Nano(now.LastDay)+a.Amount > a.DailyCap {
		if err := tx.Q.SetAutoTopupNext(ctx, min(now.FreesS, capWait.Seconds()), a.OrgID); err != nil {
			return false, fmt.Errorf("postpone auto top-up of %s: %w", a.OrgID, err)
		}
		return false, as.capped(ctx, tx, a.OrgID, a.DailyCap)
	}
	if err := as.standings.allow(ctx, tx, a.OrgID, a.Amount); err != nil {
		f := fault.From(err)
		if f == nil || f.Kind != fault.QuotaExceeded && f.Kind != fault.Forbidden {
			return false, err
		}
		return false, stopAuto(ctx, tx, a.OrgID, sentence(f.Message))
	}
	return true, nil
}

// pay queues the payment of an auto top-up that is due. Without a card it switches auto top-up off and returns nil.
func (as *AutoTopUps) pay(ctx context.Context, tx *db.Tx, a dbq.AutoTopupForUpdateRow,
	on tax.Tax) ([]id.Outbox, error) {
	payer := account.Principal{Org: a.OrgID, User: a.UserID, Email: a.Email, OrgName: a.OrgName}
	out := &outbox.Batch{Tx: tx}
	method, err := ensureCustomer(ctx, out, payer)
	if err != nil {
		return nil, err
	}
	if method == "" {
		method = as.cfg.DefaultMethod
	}
	if method == "" {
		return nil, stopAuto(ctx, tx, a.OrgID, "There is no card to pay with.")
	}
	n := newTopup{id: id.New[id.TopUp](), org: a.OrgID, user: a.UserID, amount: a.Amount, automatic: true, tax: on}
	if err := as.topups.insert(ctx, tx, n); err != nil {
		return nil, err
	}
	if err := as.topups.queuePayment(ctx, out, payer, n, method, ""); err != nil {
		return nil, err
	}
	return out.Rows, nil
}

// capped notifies the org once a day that the daily cap is reached.
func (as *AutoTopUps) capped(ctx context.Context, tx *db.Tx, org id.Org, most money.Nano) error {
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	_, err = notify.Add(ctx, tx, notify.Notice{
		Org:      org,
		Key:      "auto_topup:cap:" + now.Format("2006-01-02"),
		Severity: notify.Warn,
		Object:   org.String(),
		Title:    "Auto top-up has reached its daily cap",
		Body: fmt.Sprintf("It would add credit now, but it has added as much as its cap allows in 24 hours (%s %s). Add "+
			"credit yourself, or raise the cap.", most.Plain(), as.cfg.Currency),
	})
	return err
}

// stopAuto switches auto top-up off and notifies its org of the reason.
func stopAuto(ctx context.Context, tx *db.Tx, org id.Org, why string) error {
	n, err := tx.Q.StopAutoTopup(ctx, why, org)
	if err != nil || n == 0 {
		return err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	_, err = notify.Add(ctx, tx, notify.Notice{
		Org:      org,
		Key:      "auto_topup:stopped:" + now.Format("2006-01-02T15:04:05.000"),
		Severity: notify.Bad,
		Object:   org.String(),
		Title:    "Auto top-up was switched off",
		Body: why + " No more credit is added automatically: your clusters stop when your balance is used up. Add credit " +
			"yourself or change the card, then switch auto top-up on again.",
	})
	return err
}
