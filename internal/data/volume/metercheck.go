package volume

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// CheckMeters calculates what storage costs again, from levels and prices, and compares it with every meter and with
// what the ledger has. It returns what differs, in words. It reads all levels there ever were.
func CheckMeters(ctx context.Context, d *db.DB) (problems []string, err error) {
	for after := id.First[id.DataDomain](); ctx.Err() == nil; {
		n := 0
		err := d.InSnapshot(ctx, func(ctx context.Context, q *dbq.Queries) error {
			rows, err := q.StorageMeters(ctx, after)
			if err != nil {
				return fmt.Errorf("meters of storage: %w", err)
			}
			for _, r := range rows {
				problem, err := checkMeter(ctx, q, r)
				if err != nil {
					return fmt.Errorf("check the meter of %s: %w", r.DomainID, err)
				}
				if problem != "" {
					problems = append(problems, fmt.Sprintf("storage of %s: %s", r.DomainID, problem))
				}
				after = r.DomainID
			}
			n = len(rows)
			return nil
		})
		if err != nil || n == 0 {
			return problems, err
		}
	}
	return problems, ctx.Err()
}

// checkMeter returns what is wrong with a meter; "": nothing.
func checkMeter(ctx context.Context, q *dbq.Queries, m dbq.StorageMetersRow) (string, error) {
	booked, err := q.StorageBooked(ctx, m.DomainID.String())
	if err != nil {
		return "", err
	}
	if booked != m.Posted {
		return fmt.Sprintf("the ledger has %d nano-units, the meter %d", booked, m.Posted), nil
	}
	stands := integer(m.Numerator)
	if most := new(big.Int).Quo(stands, perGBHour); most.Cmp(big.NewInt(m.Posted)) < 0 {
		return fmt.Sprintf("%d nano-units are posted, and %s are due", m.Posted, most), nil
	}
	prices, err := q.DataPrices(ctx, m.DomainID)
	if err != nil {
		return "", err
	}
	for i, p := range prices {
		until, want := m.ThroughAt, stands
		if i+1 < len(prices) {
			until, want = prices[i+1].FromAt, integer(prices[i+1].Numerator)
		}
		cost, err := readMetered(ctx, q, m.DomainID, p.FromAt, until)
		if err != nil {
			return "", err
		}
		cost.Mul(cost, big.NewInt(p.Price)).Add(cost, integer(p.Numerator))
		if cost.Cmp(want) != 0 {
			return fmt.Sprintf("what was stored from %s to %s comes to %s byte microseconds times nano-units, and the meter "+
				"has %s", p.FromAt.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339), cost, want), nil
		}
	}
	return "", nil
}

// Verify is CheckMeters by one replica at a time. It notifies administrators of what differs, and returns how
// many meters do. Run it daily.
func (ms *Meters) Verify(ctx context.Context) (found int, err error) {
	err = ms.d.Alone(ctx, meterLock, func(ctx context.Context) error {
		problems, err := CheckMeters(ctx, ms.d)
		if found = len(problems); err != nil || found == 0 {
			return err
		}
		ms.log.Error("charges for storage do not follow from what was stored", "found", found, "one", problems[0])
		return ms.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			return notify.AddForAdmins(ctx, tx, notify.Notice{
				Key: "storage_check:" + clip(problems[0]), Severity: notify.Bad,
				Title: "Charges for storage do not follow from what was stored",
				Body:  fmt.Sprintf("%d meters differ. The first one: %s", found, problems[0]),
			})
		})
	})
	return found, err
}
