package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Meters measure what data domains store, and charge for it.
type Meters struct {
	d        *db.DB
	log      *slog.Logger
	currency string
	price    money.Nano // of a stored GB for an hour
}

// Charge posts what is stored and not posted for ChargeEvery, and at once what is owed by organisations that have
// credit again. It returns how many meters it brought up to now. Run it every few seconds, on any number of replicas.
func (ms *Meters) Charge(ctx context.Context) (int, error) {
	if _, err := ms.d.Q.PayableMeters(ctx, ms.currency); err != nil {
		return 0, fmt.Errorf("meters of storage that can be paid: %w", err)
	}
	return ms.chargeDue(ctx, time.Now())
}

// chargeDue charges the meters that are due by a moment, the oldest debts first. One that fails is due again after
// those that wait now.
func (ms *Meters) chargeDue(ctx context.Context, by time.Time) (int, error) {
	rows, err := ms.d.Q.MetersDue(ctx, &by)
	if err != nil {
		return 0, fmt.Errorf("meters of storage: %w", err)
	}
	slices.SortStableFunc(rows, func(a, b dbq.MetersDueRow) int {
		switch {
		case a.UnpaidSince == nil || b.UnpaidSince == nil:
			return cmp.Compare(paid(a), paid(b))
		default:
			return a.UnpaidSince.Compare(*b.UnpaidSince)
		}
	})
	var errs []error
	for _, r := range rows {
		if err := ms.charge(ctx, r.DomainID); err != nil { // the others are charged all the same
			errs = append(errs, fmt.Errorf("charge %s: %w", r.DomainID, err))
		}
	}
	return len(rows) - len(errs), errors.Join(errs...)
}

// paid sorts meters of which nothing is owed behind the others.
func paid(r dbq.MetersDueRow) int {
	if r.UnpaidSince == nil {
		return 1
	}
	return 0
}

// charge brings a domain's meter to now and posts.
func (ms *Meters) charge(ctx context.Context, domain id.DataDomain) error {
	return ms.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		row, err := tx.Q.LockDataDomain(ctx, domain)
		if err == nil {
			_, err = ms.chargeLocked(ctx, tx, row)
		}
		return err
	})
}

// chargeLocked brings the meter of a locked domain to now, and posts what is due as far as the wallet has it. The rest
// is owed; volumes that are hidden because of it are shown again when it is paid.
func (ms *Meters) chargeLocked(ctx context.Context, tx *db.Tx, domain dbq.DataDomain) (unpaid, error) {
	m, err := tx.Q.LockDataMeter(ctx, domain.ID)
	if err != nil {
		return unpaid{}, fmt.Errorf("lock the meter of %s: %w", domain.ID, err)
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return unpaid{}, err
	}
	was, price := m.DataMeter, int64(ms.price)
	if now = now.Truncate(time.Microsecond); now.Before(was.ThroughAt) { // the clock was set back
		now = was.ThroughAt
	}
	if m.Price != price {
		err := tx.Q.InsertDataPrice(ctx, dbq.InsertDataPriceParams{
			DomainID: domain.ID, FromAt: was.ThroughAt, Price: price, Numerator: was.Numerator,
		})
		if err != nil {
			return unpaid{}, fmt.Errorf("note the price of %s: %w", domain.ID, err)
		}
	}
	sum, err := readMetered(ctx, tx.Q, domain.ID, was.ThroughAt, now)
	if err != nil {
		return unpaid{}, err
	}
	sum.Mul(sum, big.NewInt(price)).Add(sum, integer(was.Numerator))
	p := dbq.SaveDataMeterParams{
		DomainID: domain.ID, ThroughAt: now, Numerator: pgtype.Numeric{Int: sum, Valid: true}, Posted: was.Posted,
		Steps: was.Steps,
	}
	due := money.Nano(new(big.Int).Quo(sum, perGBHour).Int64() - was.Posted)
	u := unpaid{org: m.OrgID, since: was.UnpaidSince, kept: was.KeptUntil, now: now, erased: domain.ErasedAt != nil}
	if due > 0 {
		pay, err := ms.take(ctx, tx, m.OrgID, domain.ID, due, p.Steps+1, now)
		if err != nil {
			return u, err
		}
		if pay > 0 {
			p.Posted, p.Steps = p.Posted+int64(pay), p.Steps+1
		}
		if u.owed = due - pay; pay > 0 && u.owed > 0 && u.since != nil {
			rest := new(big.Int).Mul(big.NewInt(p.Posted), perGBHour)
			if u.since, err = ms.oldest(ctx, tx, domain.ID, *u.since, now, rest.Sub(sum, rest)); err != nil {
				return u, err
			}
		}
	}
	if err := judge(ctx, tx, &u); err != nil {
		return u, err
	}
	p.UnpaidSince, p.KeptUntil = u.since, u.kept
	schedule(&p, domain, now)
	if err := tx.Q.SaveDataMeter(ctx, p); err != nil {
		return u, fmt.Errorf("save the meter of %s: %w", domain.ID, err)
	}
	return u, applyUnpaid(ctx, ms.currency, tx, domain.ID, u, was.UnpaidSince == nil)
}

// readMetered returns the byte microseconds that a domain is billed for between two moments.
func readMetered(ctx context.Context, q *dbq.Queries, domain id.DataDomain, from, until time.Time) (*big.Int, error) {
	rows, err := q.DataLevels(ctx, domain, until, from)
	if err != nil {
		return nil, fmt.Errorf("levels of %s: %w", domain, err)
	}
	return metered(rows, from, until), nil
}

// oldest returns since when a domain is unpaid once a part was paid, if it was so since a moment and rest is left, in
// units of the meter's numerator.
func (ms *Meters) oldest(ctx context.Context, tx *db.Tx, domain id.DataDomain, since, now time.Time,
	rest *big.Int) (*time.Time, error) {
	rows, err := tx.Q.DataLevels(ctx, domain, now, since)
	if err != nil {
		return nil, fmt.Errorf("levels of %s: %w", domain, err)
	}
	at := unpaidFrom(levelsOf(rows), since, now, ms.price, rest)
	return &at, nil
}

// take posts what the wallet has of an amount that is due, and returns it. Budgets of the whole organisation count it.
func (ms *Meters) take(ctx context.Context, tx *db.Tx, org id.Org, domain id.DataDomain, due money.Nano, step int64,
	now time.Time) (money.Nano, error) {
	wallet, fee := ledger.Wallet(org, ms.currency), ledger.Fee(ms.currency)
	accounts, err := ledger.Lock(ctx, tx, wallet, fee)
	if err != nil {
		return 0, err
	}
	pay := min(due, accounts.Spendable(wallet))
	if pay == 0 {
		return 0, nil
	}
	booked, err := accounts.Post(ctx, ledger.Entry{
		Kind: "storage", Key: fmt.Sprintf("storage:%s:%d", domain, step), Ref: domain.String(),
		Memo:      fmt.Sprintf("storage until %s", now.UTC().Format("2006-01-02 15:04")),
		Transfers: []ledger.Transfer{{Debit: wallet, Credit: fee, Amount: pay}},
	})
	if err == nil && !booked {
		err = fmt.Errorf("step %d of %s is in the ledger already", step, domain)
	}
	if err != nil {
		return 0, err
	}
	return pay, budget.Stored(ctx, tx, org, ms.currency, pay)
}
