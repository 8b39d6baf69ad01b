package metering

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// maxContracts bounds the contracts that a replica remembers, at about half a KB each.
const maxContracts = 100_000

// contracts remembers of leases what never changes once they are written: who is party to them, their currency, prices
// and share. Whatever may change (LeasesWithWindows) is read each time, after the meter is locked. Safe for concurrent
// use; the zero value is ready for use.
type contracts struct {
	mu sync.Mutex
	by map[id.Lease]contract
}

// contract is what never changes of a lease. Its other columns are of when it was read and must not be used.
type contract struct {
	row    dbq.LeasesByIDRow
	prices []Price // not changed by those who get them
}

// of returns the contracts that are remembered of the meters' leases, and the ids of the others.
func (c *contracts) of(meters []dbq.LeaseMeter) (have map[id.Lease]contract, missing []pgtype.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have = make(map[id.Lease]contract, len(meters))
	for _, m := range meters {
		if v, ok := c.by[m.LeaseID]; ok {
			have[m.LeaseID] = v
		} else {
			missing = append(missing, raw(m.LeaseID))
		}
	}
	return have, missing
}

// remember adds contracts. What exceeds the bound replaces any others.
func (c *contracts) remember(have map[id.Lease]contract, missing []pgtype.UUID) {
	if len(missing) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[id.Lease]contract{}
	}
	for l, v := range have {
		c.by[l] = v
	}
	for l := range c.by {
		if len(c.by) <= maxContracts {
			break
		}
		delete(c.by, l)
	}
}

// queue is queueWithMeters of locked meters, without the windows that end below their watermarks.
func (c *contracts) queue(b *pgx.Batch, meters []dbq.LeaseMeter) func() ([]*lease, error) {
	if len(meters) == 0 {
		return func() ([]*lease, error) { return nil, nil }
	}
	ids, since := make([]pgtype.UUID, len(meters)), make([]int64, len(meters))
	for i, m := range meters {
		ids[i], since[i] = raw(m.LeaseID), m.SettledThroughMs
	}
	var r struct {
		leases  []dbq.LeasesByIDRow
		prices  []dbq.LeasePricesRow
		current []dbq.LeasesWithWindowsRow
		now     time.Time
	}
	have, missing := c.of(meters)
	if len(missing) > 0 {
		db.Read(b, &r.leases, (*dbq.Queries).LeasesByID, missing)
		db.Read(b, &r.prices, (*dbq.Queries).LeasePrices, missing)
	}
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		r.current, err = q.LeasesWithWindows(ctx, ids, since)
		return err
	})
	db.ReadNow(b, &r.now)
	return func() ([]*lease, error) {
		prices := pricesByLease(r.prices)
		for _, l := range r.leases {
			have[l.ID] = contract{l, prices[l.ID]}
		}
		out, rows := make([]*lease, len(meters)), r.current
		for i, m := range meters { // both in lease-id order
			v := have[m.LeaseID]
			if len(rows) == 0 || rows[0].ID != m.LeaseID || len(v.prices) == 0 {
				return nil, fmt.Errorf("the meter of %s has no lease or price", m.LeaseID)
			}
			out[i] = leaseOf(v.now(rows[0]), m, r.now)
			out[i].terms.Prices = v.prices
			for ; len(rows) > 0 && rows[0].ID == m.LeaseID; rows = rows[1:] {
				if rows[0].N > 0 {
					out[i].windows = append(out[i].windows, windowIn(rows[0]))
				}
			}
		}
		c.remember(have, missing)
		return out, nil
	}
}

// now returns the lease as it is now.
func (v contract) now(r dbq.LeasesWithWindowsRow) dbq.LeasesByIDRow {
	l := v.row
	l.Epoch, l.RunUntil, l.CoveredFromMs = r.Epoch, r.RunUntil, r.CoveredFromMs
	l.CreatedAt, l.EndedAt, l.SettledAt = r.CreatedAt, r.EndedAt, r.SettledAt
	return l
}

// windowIn returns the window of a row that has one.
func windowIn(r dbq.LeasesWithWindowsRow) Window {
	return windowOf(dbq.ClusterWindow{
		OpenedMs:         r.OpenedMs,
		ConfirmedUntilMs: r.ConfirmedUntilMs,
		ClosedMs:         r.ClosedMs,
		DoubtFromMs:      r.DoubtFromMs,
		LimitMs:          r.LimitMs,
	})
}
