package volume

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// Storage is billed in byte microseconds: the meter's numerator is the sum of bytes × microseconds × price, and its
// denominator is a GB for an hour. What is posted is the whole nano-units of that, so that nothing is lost between
// postings.
var perGBHour = new(big.Int).Mul(big.NewInt(GB), big.NewInt(int64(time.Hour/time.Microsecond)))

// ChargeEvery is how often stored bytes are posted.
const ChargeEvery = time.Hour

// unpaidLife is how long the volumes of an organisation without credit are kept.
const unpaidLife = 30 * 24 * time.Hour

// What an erased domain still owes is tried once a day for a year, and then written off: otherwise the meters of all
// orgs that ever left without paying would be read forever.
const (
	retryErased = 24 * time.Hour
	erasedDebt  = 365 * 24 * time.Hour
)

// PerHour returns what stored bytes cost in an hour, rounded up to micro-units.
func (v *Volumes) PerHour(bytes int64) money.Micro {
	n := new(big.Int).Mul(big.NewInt(bytes), big.NewInt(int64(v.cfg.PricePerGBHour)))
	n.Add(n, big.NewInt(GB*1000-1)).Quo(n, big.NewInt(GB*1000))
	return money.Micro(n.Int64())
}

// HoursPerMonth is how long a month is in prices: a year has 8,760 hours.
const HoursPerMonth = 730

// PerGBMonth returns the price of a stored GB for a month, rounded to micro-units.
func (v *Volumes) PerGBMonth() money.Micro {
	return money.Micro((int64(v.cfg.PricePerGBHour)*HoursPerMonth + 500) / 1000)
}

// level is how many bytes are stored from a moment on.
type level struct {
	from  time.Time
	bytes int64
}

// byteMicros returns Σ bytes × microseconds between two moments. levels are sorted; the first one holds at from.
func byteMicros(levels []level, from, until time.Time) *big.Int {
	sum := new(big.Int)
	for i, l := range levels {
		begin, end := l.from, until
		if begin.Before(from) {
			begin = from
		}
		if i+1 < len(levels) && levels[i+1].from.Before(end) {
			end = levels[i+1].from
		}
		if us := end.Sub(begin).Microseconds(); us > 0 {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(l.bytes), big.NewInt(us)))
		}
	}
	return sum
}

// Charge posts what is stored and not posted for ChargeEvery, and returns how many meters it brought up to now.
func (v *Volumes) Charge(ctx context.Context) (int, error) {
	return v.chargeDue(ctx, time.Now())
}

// chargeDue charges the meters that are due by a moment. One that fails is due again after those that wait now.
func (v *Volumes) chargeDue(ctx context.Context, by time.Time) (int, error) {
	domains, err := v.d.Q.MetersDue(ctx, &by)
	if err != nil {
		return 0, fmt.Errorf("meters of storage: %w", err)
	}
	var errs []error
	for _, d := range domains {
		if err := v.charge(ctx, d); err != nil { // the others are charged all the same
			errs = append(errs, fmt.Errorf("charge %s: %w", d, err))
		}
	}
	return len(domains) - len(errs), errors.Join(errs...)
}

// charge brings a domain's meter to now and posts. Without credit the meter goes on, and the posting is made up for
// later.
func (v *Volumes) charge(ctx context.Context, domain id.DataDomain) error {
	err := v.meter(ctx, domain, true)
	if fault.Is(err, fault.InsufficientFunds) {
		return v.meter(ctx, domain, false)
	}
	return err
}

func (v *Volumes) meter(ctx context.Context, domain id.DataDomain, post bool) error {
	return v.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		row, err := tx.Q.LockDataDomain(ctx, domain)
		if err != nil {
			return err
		}
		m, err := tx.Q.LockDataMeter(ctx, domain)
		if err != nil {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		now = now.Truncate(time.Microsecond)
		rows, err := tx.Q.DataLevels(ctx, domain, now, m.DataMeter.ThroughAt)
		if err != nil {
			return err
		}
		sum := metered(rows, m.DataMeter.ThroughAt, now)
		sum.Mul(sum, big.NewInt(int64(v.cfg.PricePerGBHour)))
		sum.Add(sum, integer(m.DataMeter.Numerator))
		due := new(big.Int).Quo(sum, perGBHour).Int64() - m.DataMeter.Posted
		p := dbq.SaveDataMeterParams{
			DomainID: domain, ThroughAt: now, Numerator: pgtype.Numeric{Int: sum, Valid: true}, Posted: m.DataMeter.Posted,
			Steps: m.DataMeter.Steps,
		}
		switch {
		case due > 0 && !post:
			if p.UnpaidSince = m.DataMeter.UnpaidSince; p.UnpaidSince == nil {
				p.UnpaidSince = &now
				if err := v.notifyUnpaid(ctx, tx, m.OrgID, now); err != nil {
					return err
				}
			}
		case due > 0:
			p.Posted, p.Steps = p.Posted+due, p.Steps+1
		}
		schedule(&p, row, now)
		if err := tx.Q.SaveDataMeter(ctx, p); err != nil {
			return err
		}
		if p.Steps == m.DataMeter.Steps {
			return nil
		}
		_, err = ledger.Post(ctx, tx, ledger.Entry{
			Kind: "storage", Key: fmt.Sprintf("storage:%s:%d", domain, p.Steps), Ref: domain.String(),
			Memo: fmt.Sprintf("storage until %s", now.UTC().Format("2006-01-02 15:04")),
			Transfers: []ledger.Transfer{{
				Debit: ledger.Wallet(m.OrgID, v.cfg.Currency), Credit: ledger.Fee(v.cfg.Currency), Amount: money.Nano(due),
			}},
		})
		return err
	})
}

// schedule sets when a meter is due again. That of an erased domain ends when all is posted.
func schedule(p *dbq.SaveDataMeterParams, domain dbq.DataDomain, now time.Time) {
	next := now.Add(ChargeEvery)
	switch {
	case domain.ErasedAt == nil || domain.Bytes > 0:
	case p.UnpaidSince == nil:
		return
	case now.Sub(*domain.ErasedAt) >= erasedDebt:
		p.UnpaidSince = nil
		return
	default:
		next = now.Add(retryErased)
	}
	p.NextAt = &next
}

// integer returns the value of a numeric column without a fraction.
func integer(n pgtype.Numeric) *big.Int {
	v := new(big.Int)
	if n.Int != nil {
		v.Set(n.Int)
	}
	if n.Exp > 0 {
		v.Mul(v, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n.Exp)), nil))
	}
	return v
}

func (v *Volumes) notifyUnpaid(ctx context.Context, tx *db.Tx, org id.Org, now time.Time) error {
	until := now.Add(unpaidLife).UTC().Format("2 January 2006")
	_, err := notify.Add(ctx, tx, notify.Notice{
		Org: org, Severity: notify.Warn, Key: "storage_unpaid:" + now.UTC().Format(time.DateOnly),
		Title: "Your volumes are not paid for",
		Body: "There is not enough credit for what your volumes store. No new snapshots are taken until you add credit. " +
			"What is stored is kept until " + until + ", and erased then.",
	})
	return err
}

// EraseUnpaid deletes the volumes of orgs that have not paid for storage for 30 days, and notifies these orgs.
func (v *Volumes) EraseUnpaid(ctx context.Context) (int, error) {
	before := time.Now().Add(-unpaidLife)
	rows, err := v.d.Q.UnpaidVolumes(ctx, &before)
	if err != nil {
		return 0, fmt.Errorf("unpaid volumes: %w", err)
	}
	for i, r := range rows {
		err := v.locked(ctx, r.OrgID, r.ID, func(ctx context.Context, tx *db.Tx, row dbq.Volume) error {
			if err := v.delete(ctx, tx, row); err != nil {
				return err
			}
			_, err := notify.Add(ctx, tx, notify.Notice{
				Org: r.OrgID, Severity: notify.Warn, Key: "storage_erased:" + r.ID.String(),
				Title: fmt.Sprintf("The volume %s was erased", r.Name),
				Body:  "It was not paid for in 30 days.",
			})
			return err
		})
		if err != nil && !fault.Is(err, fault.NotFound) {
			return i, fmt.Errorf("erase %s: %w", r.ID, err)
		}
	}
	return len(rows), nil
}
