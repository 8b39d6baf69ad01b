package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe/outbox"
	"github.com/musterhq/muster/internal/stripe/reconcile"
)

// overlap is how far before the backup Stripe's list is read, because the two clocks differ and responses arrive late.
const overlap = 24 * time.Hour

// findingsShown limits the length of a report.
const findingsShown = 10_000

// Options configures Adopt.
type Options struct {
	// BackupAt is the time to which the database was restored; zero means the newest time that occurs in it. With
	// BackupAt a database is adopted even if PostgreSQL does not show that it was restored.
	BackupAt time.Time
	// NothingLost only records that this is the database from now on: for a promoted standby that had every commit, a
	// dump that was read back while no server ran, or pg_upgrade.
	NothingLost bool
	// Payments, Reconciler and Payouts read from Stripe and send requests to it. They are nil if there is no Stripe, as
	// in a sandbox, whose Stripe was restored with the database.
	Payments   *payment.Adoption
	Reconciler *reconcile.Reconciler
	Payouts    *payout.Payouts
}

// Report is what an adoption found and did.
type Report struct {
	Nothing    bool // no adoption was needed: the report is of the last one, if there was any
	BackupAt   time.Time
	AdoptedAt  time.Time
	FinishedAt time.Time
	Epoch      int64
	Hosts      int64 // hosts that sell nothing until they have reported what runs on them
	Findings   []Finding
	Problems   []string // problems of the ledger
}

// Finding is an object at Stripe that the restored database did not contain.
type Finding struct {
	Object, Kind, Currency, Note string
	Outcome                      payment.Outcome
	Org                          id.Org
	Amount                       money.Nano
}

// Adopt makes a restored database the platform's. Run it before any server starts, and again if it fails: it continues
// where it stopped. Once it is complete it changes nothing more. The report lists as Open what it cannot decide; the
// sending of money stays paused until an admin resumes it.
func Adopt(ctx context.Context, d *db.DB, o Options) (Report, error) {
	now, known, err := identify(ctx, d)
	if err != nil {
		return Report{}, fmt.Errorf("identity of the database: %w", err)
	}
	r, begun, err := begin(ctx, d, o, now, known)
	if err != nil || !begun {
		return r.report(ctx, d, err, true)
	}
	if o.Payments != nil {
		if err := compare(ctx, d, o, r.Restore); err != nil {
			return Report{}, fmt.Errorf("%w; run the command again: it goes on where it stopped", err)
		}
	}
	if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.Q.FinishRestore(ctx, r.ID); err != nil {
			return fmt.Errorf("finish: %w", err)
		}
		if !known {
			return nil
		}
		return now.save(ctx, tx)
	}); err != nil {
		return Report{}, err
	}
	return r.report(ctx, d, nil, false)
}

type adoption struct{ dbq.Restore }

// begin records that the database was restored, and everything that must be in force before the first request to
// Stripe, or finds the earlier adoption that did so. begun is false if there is nothing to adopt.
func begin(ctx context.Context, d *db.DB, o Options, now identity, known bool) (a adoption, begun bool, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		a, begun = adoption{}, false
		c, err := tx.Q.ControlForUpdate(ctx)
		if err != nil {
			return fmt.Errorf("lock the control row: %w", err)
		}
		last, err := tx.Q.LastRestore(ctx)
		if err != nil && !db.NoRows(err) {
			return fmt.Errorf("last restore: %w", err)
		}
		same := !known || c.SystemID == nil || identityOf(c) == now
		switch had := err == nil; {
		case had && last.FinishedAt == nil && !o.NothingLost:
			a, begun = adoption{last}, true
			return nil
		case had && last.FinishedAt == nil:
			return errors.New("an adoption was begun and is not complete: run the command without --nothing-lost")
		case o.NothingLost:
			if !known {
				return nil
			}
			return now.save(ctx, tx)
		case same && (o.BackupAt.IsZero() || had && last.BackupAt.Equal(o.BackupAt.Round(time.Microsecond))):
			a = adoption{last}
			return nil
		}
		begun = true
		a, err = start(ctx, tx, o)
		return err
	})
	return a, begun, err
}

func start(ctx context.Context, tx *db.Tx, o Options) (adoption, error) {
	at, err := tx.Now(ctx)
	if err != nil {
		return adoption{}, err
	}
	from := o.BackupAt
	if from.IsZero() {
		if from, err = tx.Q.NewestKnown(ctx); err != nil {
			return adoption{}, fmt.Errorf("newest moment that the database knows: %w", err)
		}
	}
	if from.After(at) {
		return adoption{}, errors.New("the moment of the backup is in the future")
	}
	epoch, err := tx.Q.RaiseControlEpoch(ctx)
	if err != nil {
		return adoption{}, fmt.Errorf("raise the control epoch: %w", err)
	}
	hosts, err := host.RecordRestore(ctx, tx, from)
	if err != nil {
		return adoption{}, err
	}
	if err := volume.Restored(ctx, tx); err != nil {
		return adoption{}, err
	}
	if err := outbox.PauseByPlatform(ctx, tx, "the database was restored to "+from.UTC().Format(time.DateTime)+
		" UTC: read the report of adopt-restore, then resume"); err != nil {
		return adoption{}, err
	}
	r, err := tx.Q.InsertRestore(ctx, from, epoch, hosts)
	if err != nil {
		return adoption{}, fmt.Errorf("record the restore: %w", err)
	}
	if err := notify.AddForAdmins(ctx, tx, notify.Notice{
		Key:      fmt.Sprintf("restore:%d", r.ID),
		Severity: notify.Bad,
		Title:    "The database was restored",
		Body: "It was restored to " + from.UTC().Format(time.DateTime) +
			" UTC. No money is sent until you resume sending under Admin, Payouts. What people did after that moment is " +
			"lost, " +
			"except what Stripe and hosts still know.",
	}); err != nil {
		return adoption{}, err
	}
	return adoption{r}, audit.Record(ctx, tx, audit.Event{
		Action: "platform.restore",
		Detail: map[string]any{"backup_at": from.UTC().Format(time.RFC3339), "epoch": epoch},
	})
}

// compare books what happened at Stripe since the backup and is missing from the database.
func compare(ctx context.Context, d *db.DB, o Options, r dbq.Restore) error {
	moves, err := o.Payments.Moves(ctx, r.BackupAt.Add(-overlap))
	if err != nil {
		return fmt.Errorf("list moves of money: %w", err)
	}
	for _, m := range moves {
		put := func(ctx context.Context, q *dbq.Queries, a payment.Adopted) error {
			return q.PutRestoreFinding(ctx, dbq.PutRestoreFindingParams{
				RestoreID: r.ID,
				Object:    m.Object,
				Kind:      string(m.Kind),
				Outcome:   string(a.Outcome),
				OrgID:     a.Org,
				Amount:    int64(m.Amount),
				Currency:  m.Currency,
				Note:      a.Note,
			})
		}
		record := func(ctx context.Context, tx *db.Tx, a payment.Adopted) error { return put(ctx, tx.Q, a) }
		var a payment.Adopted
		switch m.Kind {
		case payment.MovePayment:
			a, err = o.Payments.Payment(ctx, m.Object, record)
		case payment.MoveRefund:
			a, err = o.Payments.Refund(ctx, m.Object, record)
		case payment.MoveDispute:
			a, err = o.Payments.Dispute(ctx, m.Object)
		case payment.MoveTransfer:
			a, err = o.Payouts.AdoptTransfer(ctx, m.Object, record)
		default: // the reconciliation books it
			a = payment.Adopted{Outcome: payment.Foreign, Note: "the reconciliation books or reports it"}
		}
		if err != nil {
			return fmt.Errorf("adopt %s: %w", m.Object, err)
		}
		if a.Outcome == payment.Known || a.Outcome == payment.Foreign && m.At.Before(r.BackupAt) {
			continue
		}
		if err := put(ctx, d.Q, a); err != nil {
			return fmt.Errorf("record the adoption of %s: %w", m.Object, err)
		}
	}
	_, err = o.Reconciler.Reconcile(ctx)
	return err
}

// report reads what an adoption did.
func (a adoption) report(ctx context.Context, d *db.DB, err error, nothing bool) (Report, error) {
	if err != nil {
		return Report{}, err
	}
	out := Report{Nothing: nothing, BackupAt: a.BackupAt, AdoptedAt: a.AdoptedAt, Epoch: a.Epoch, Hosts: a.Hosts}
	if a.ID == 0 {
		return out, nil
	}
	last, err := d.Q.LastRestore(ctx)
	if err != nil {
		return out, fmt.Errorf("last restore: %w", err)
	}
	if last.FinishedAt != nil {
		out.FinishedAt = *last.FinishedAt
	}
	rows, err := d.Q.RestoreFindings(ctx, a.ID, findingsShown)
	if err != nil {
		return out, fmt.Errorf("findings: %w", err)
	}
	for _, f := range rows {
		out.Findings = append(out.Findings, Finding{Object: f.Object, Kind: f.Kind, Currency: f.Currency, Note: f.Note,
			Outcome: payment.Outcome(f.Outcome), Org: f.OrgID, Amount: money.Nano(f.Amount)})
	}
	books, err := ledger.CheckAll(ctx, d)
	out.Problems = books.Problems
	return out, err
}
