package metering

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
)

// lease is one lease with all that a charge depends on.
type lease struct {
	dbq.LeasesByIDRow
	meter  Meter
	energy int64 // mJ
	frozen bool  // posts nothing until an admin has looked
	// freezing: frozen by this very transaction.
	freezing bool
	terms    Terms
	windows  []Window
	// unpostedSince is since when proven time waits to be booked, unix ms; 0: none does.
	unpostedSince int64
	readAt        int64 // PostgreSQL's clock when it was read, unix ms
}

func (l *lease) ended() bool   { return l.EndedAt != nil }
func (l *lease) settled() bool { return l.SettledAt != nil }

// runUntil is in unix ms, 0 when it was never authorised.
func (l *lease) runUntil() int64 {
	if l.RunUntil == nil {
		return 0
	}
	return l.RunUntil.UnixMilli()
}

// lockCluster locks the cluster's meters in id order and reads their leases.
func lockCluster(ctx context.Context, tx *db.Tx, cluster id.Cluster) ([]*lease, error) {
	meters, err := tx.Q.LockMetersOfCluster(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("metering: lock meters: %w", err)
	}
	return withMeters(ctx, tx.Q, meters, true)
}

// withMeters reads what belongs to the meters, in their order. To be called after they are locked: what it reads may
// have been changed by whoever held the locks before. With above it leaves out the windows that end below the meters'
// watermarks: no charge depends on them, and a lease of a year may have thousands.
func withMeters(ctx context.Context, q *dbq.Queries, meters []dbq.LeaseMeter, above bool) ([]*lease, error) {
	if len(meters) == 0 {
		return nil, nil
	}
	ids, since := make([]pgtype.UUID, len(meters)), make([]int64, len(meters))
	for i, m := range meters {
		ids[i] = raw(m.LeaseID)
		if above {
			since[i] = m.SettledThroughMs
		}
	}
	var rows []dbq.LeasesByIDRow
	var priceRows []dbq.LeasePricesRow
	var windowRows []dbq.ClusterWindow
	var now time.Time
	b := &pgx.Batch{}
	db.Read(b, &rows, (*dbq.Queries).LeasesByID, ids)
	db.Read(b, &priceRows, (*dbq.Queries).LeasePrices, ids)
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		windowRows, err = q.WindowsOfLeases(ctx, ids, since)
		return err
	})
	db.ReadNow(b, &now)
	if err := db.Send(ctx, q, b); err != nil {
		return nil, fmt.Errorf("metering: leases: %w", err)
	}
	if len(rows) != len(meters) {
		return nil, fmt.Errorf("metering: %d meters of %d leases", len(meters), len(rows))
	}
	byLease := map[id.Lease][]Price{}
	for _, p := range priceRows {
		byLease[p.LeaseID] = append(byLease[p.LeaseID], Price{p.FromMs, p.Rate})
	}
	byCluster := map[id.Cluster][]Window{}
	for _, r := range windowRows {
		w := Window{OpenedMS: r.OpenedMs, ConfirmedMS: r.ConfirmedUntilMs}
		for _, f := range []struct {
			to   *int64
			from *int64
		}{{&w.ClosedMS, r.ClosedMs}, {&w.DoubtMS, r.DoubtFromMs}, {&w.LimitMS, r.LimitMs}} {
			if f.from != nil {
				*f.to = *f.from
			}
		}
		byCluster[r.ClusterID] = append(byCluster[r.ClusterID], w)
	}
	out := make([]*lease, len(rows))
	for i, r := range rows {
		m := meters[i] // both in lease-id order
		if m.LeaseID != r.ID || len(byLease[r.ID]) == 0 {
			return nil, fmt.Errorf("metering: lease %s has no meter or price", r.ID)
		}
		out[i] = &lease{
			LeasesByIDRow: r,
			meter:         meterOf(m),
			energy:        m.EnergyMj,
			frozen:        m.Frozen,
			windows:       byCluster[r.ClusterID],
			unpostedSince: m.UnpostedSinceMs,
			readAt:        now.UnixMilli(),
			terms: Terms{
				Life:     Interval{Start: r.CreatedAt.UnixMilli(), End: forever},
				Prices:   byLease[r.ID],
				SharePPM: int64(r.HostSharePpm),
			},
		}
		if r.EndedAt != nil {
			out[i].terms.Life.End = r.EndedAt.UnixMilli()
		}
	}
	return out, nil
}

func meterOf(m dbq.LeaseMeter) Meter {
	num := m.Numerator.Int
	if m.Numerator.Exp > 0 { // PostgreSQL sends trailing zeros as an exponent
		num = new(big.Int).Mul(num, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(m.Numerator.Exp)), nil))
	}
	return Meter{
		SettledThrough: m.SettledThroughMs, Proven: interval.FromFlat(m.ProvenMs), BilledMS: m.BilledMs, Numerator: num,
		Posted: m.Posted, PostedBilledMS: m.PostedBilledMs, HostPosted: m.HostPosted,
	}
}

// fresh is time that was not known to be proven before.
type fresh struct {
	intervals []Interval
	energy    int64 // mJ
}

// charge adds fresh time to the leases, whose meters are locked, writes the segments it comes from, and books what
// their proven time costs beyond what is booked: of all of them or of those that are due.
func charge(ctx context.Context, tx *db.Tx, leases []*lease, add map[id.Lease]fresh, from []*received,
	how steps) error {
	var entries []ledger.Entry
	var changed []*lease
	for _, l := range leases {
		f, news := add[l.ID]
		next, p := Charge(l.meter, f.intervals, l.windows, l.terms)
		if p.Renter < 0 || p.Host < 0 || p.Fee < 0 {
			return fmt.Errorf("metering: lease %s: posting %+v would take money back", l.ID, p)
		}
		next, p, since := l.post(next, p, how)
		if p.Renter > 0 {
			entries = append(entries, usageEntry(l, next, p))
		}
		// A watermark that rises while money waits is written with what comes next.
		if !news && !l.freezing && p == (Posting{}) && since == l.unpostedSince &&
			(since != 0 || next.SettledThrough == l.meter.SettledThrough) {
			continue
		}
		l.meter, l.energy, l.unpostedSince = next, l.energy+f.energy, since
		changed = append(changed, l)
	}
	if len(changed) == 0 {
		return nil
	}
	booking, err := ledger.Prepare(ctx, tx, entries) // a key is a meter's total: nobody else can have used it
	if err != nil {
		return fmt.Errorf("metering: post usage: %w", err)
	}
	b := &pgx.Batch{}
	if err := queueSegments(b, from); err != nil {
		return err
	}
	db.Write(b, (*dbq.Queries).UpdateMeters, metersOf(changed))
	booking.QueueWrite(b)
	if err := tx.Send(ctx, b); err != nil {
		return fmt.Errorf("metering: write segments, meters and charges: %w", err)
	}
	return nil
}

func metersOf(leases []*lease) (p dbq.UpdateMetersParams) {
	for _, l := range leases {
		m := l.meter
		p.Leases, p.Settled = append(p.Leases, raw(l.ID)), append(p.Settled, m.SettledThrough)
		p.Proven, p.Billed = append(p.Proven, literal(m.Proven)), append(p.Billed, m.BilledMS)
		p.Numerators = append(p.Numerators, pgtype.Numeric{Int: m.Numerator, Valid: true})
		p.Posted, p.PostedBilled = append(p.Posted, int64(m.Posted)), append(p.PostedBilled, m.PostedBilledMS)
		p.HostPosted, p.Energies = append(p.HostPosted, int64(m.HostPosted)), append(p.Energies, l.energy)
		p.Frozen, p.UnpostedSince = append(p.Frozen, l.frozen), append(p.UnpostedSince, l.unpostedSince)
	}
	return p
}

// usageEntry books a posting. Its key is the lease's cumulative charge after it, which only grows.
func usageEntry(l *lease, after Meter, p Posting) ledger.Entry {
	hold := ledger.Hold(l.RenterOrgID, l.ClusterID, l.Currency)
	e := ledger.Entry{
		Kind: "usage",
		Key:  fmt.Sprintf("usage:%s:%d", l.ID, int64(after.Posted)),
		Memo: fmt.Sprintf("node %d, %s", l.Rank, time.Duration(p.BilledMS)*time.Millisecond),
		Ref:  l.ClusterID.String(),
	}
	if p.Host > 0 {
		e.Transfers = append(e.Transfers, ledger.Transfer{
			Debit:  hold,
			Credit: ledger.HostPending(l.HostOrgID, l.Currency),
			Amount: p.Host,
		})
	}
	if p.Fee > 0 {
		e.Transfers = append(e.Transfers, ledger.Transfer{Debit: hold, Credit: ledger.Fee(l.Currency), Amount: p.Fee})
	}
	return e
}

// raw is an id for a uuid[] parameter, in which the zero id stays a value.
func raw[T interface{ UUIDValue() (pgtype.UUID, error) }](v T) pgtype.UUID {
	u, _ := v.UUIDValue() // never fails
	u.Valid = true
	return u
}
