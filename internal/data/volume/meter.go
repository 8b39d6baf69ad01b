package volume

import (
	"math/big"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/money"
)

// Storage is billed in byte microseconds: the meter's numerator is the sum of bytes × microseconds × price, and its
// denominator is a GB for an hour. What is posted is the whole nano-units of that, so that nothing is lost between
// postings.
var perGBHour = new(big.Int).Mul(big.NewInt(GB), big.NewInt(int64(time.Hour/time.Microsecond)))

// ChargeEvery is how often stored bytes are posted.
const ChargeEvery = time.Hour

// What an erased domain still owes is tried once a day for a year, and then written off: otherwise the meters of all
// orgs that ever left without paying would be read forever.
const (
	retryErased = 24 * time.Hour
	erasedDebt  = 365 * 24 * time.Hour
)

// PerHour returns what stored bytes cost in an hour, rounded up to micro-units.
func (ms *Meters) PerHour(bytes int64) money.Micro {
	n := new(big.Int).Mul(big.NewInt(bytes), big.NewInt(int64(ms.price)))
	n.Add(n, big.NewInt(GB*1000-1)).Quo(n, big.NewInt(GB*1000))
	return money.Micro(n.Int64())
}

// HoursPerMonth is how long a month is in prices: a year has 8,760 hours.
const HoursPerMonth = 730

// PerGBMonth returns the price of a stored GB for a month, rounded to micro-units.
func (ms *Meters) PerGBMonth() money.Micro {
	return money.Micro((int64(ms.price)*HoursPerMonth + 500) / 1000)
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

// unpaidFrom returns since when storage is unpaid if what is paid pays for the oldest: the latest moment from which on
// the levels, at a price, come to what is unpaid. It is not before from. levels are sorted; the first one holds then.
func unpaidFrom(levels []level, from, until time.Time, price money.Nano, unpaid *big.Int) time.Time {
	left := new(big.Int).Set(unpaid)
	for i := len(levels) - 1; i >= 0 && until.After(from); i-- {
		begin := levels[i].from
		if begin.Before(from) {
			begin = from
		}
		rate := new(big.Int).Mul(big.NewInt(levels[i].bytes), big.NewInt(int64(price))) // of a microsecond
		cost := new(big.Int).Mul(rate, big.NewInt(until.Sub(begin).Microseconds()))
		if rate.Sign() > 0 && cost.Cmp(left) >= 0 {
			us := left.Add(left, rate).Sub(left, big.NewInt(1)).Quo(left, rate).Int64() // rounded up
			return until.Add(-time.Duration(us) * time.Microsecond)
		}
		left.Sub(left, cost)
		until = begin
	}
	return from
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
