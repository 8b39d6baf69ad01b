package metering

import (
	"bytes"
	"context"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

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
	frozen bool  // posts nothing until an admin has decided
	// freezing: frozen by this very transaction.
	freezing bool
	terms    Terms
	windows  []Window
	// unpostedSince is since when proven time waits to be booked, unix ms; 0: none does.
	unpostedSince int64
	// run is the run that the meter took segments of last, and runSeq the highest number that is stored of it.
	run    runKey
	runSeq int64
	readAt int64 // PostgreSQL's clock when it was read, unix ms
}

func (l *lease) ended() bool   { return l.EndedAt != nil }
func (l *lease) settled() bool { return l.SettledAt != nil }

// counts reports whether time of the lease is being billed now, as far as is known.
func (l *lease) counts() bool {
	open := func(w Window) bool { return w.running() && w.DoubtMS == 0 }
	return !l.ended() && slices.ContainsFunc(l.windows, open)
}

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
		return nil, fmt.Errorf("lock meters: %w", err)
	}
	return withMeters(ctx, tx.Q, meters, true)
}

// withMeters reads what belongs to the meters, in their order. Call it after they are locked: what it reads may have
// been changed by the transaction that held the locks before. With above it leaves out the windows that end below the
// meters' watermarks: no charge depends on them, and a lease of a year may have thousands.
func withMeters(ctx context.Context, q *dbq.Queries, meters []dbq.LeaseMeter, above bool) ([]*lease, error) {
	b := &pgx.Batch{}
	leases := queueWithMeters(b, meters, above)
	if err := db.Send(ctx, q, b); err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	return leases()
}

// queueWithMeters queues the reads of withMeters. Once they are sent, the function that it returns returns the leases.
func queueWithMeters(b *pgx.Batch, meters []dbq.LeaseMeter, above bool) func() ([]*lease, error) {
	if len(meters) == 0 {
		return func() ([]*lease, error) { return nil, nil }
	}
	ids, since := make([]pgtype.UUID, len(meters)), make([]int64, len(meters))
	for i, m := range meters {
		ids[i] = raw(m.LeaseID)
		if above {
			since[i] = m.SettledThroughMs
		}
	}
	var r leaseRows
	db.Read(b, &r.leases, (*dbq.Queries).LeasesByID, ids)
	db.Read(b, &r.prices, (*dbq.Queries).LeasePrices, ids)
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		r.windows, err = q.WindowsOfLeases(ctx, ids, since)
		return err
	})
	db.ReadNow(b, &r.now)
	return func() ([]*lease, error) { return r.with(meters) }
}

// leaseRows is what the tables hold of some leases, without their meters.
type leaseRows struct {
	leases  []dbq.LeasesByIDRow
	prices  []dbq.LeasePricesRow
	windows []dbq.ClusterWindow
	now     time.Time // PostgreSQL's clock when they were read
}

// with returns the leases with their meters.
func (r leaseRows) with(meters []dbq.LeaseMeter) ([]*lease, error) {
	if len(r.leases) != len(meters) {
		return nil, fmt.Errorf("%d meters of %d leases", len(meters), len(r.leases))
	}
	byLease := make(map[id.Lease][]Price, len(meters))
	for _, p := range r.prices {
		byLease[p.LeaseID] = append(byLease[p.LeaseID], Price{p.FromMs, p.Rate})
	}
	byCluster := make(map[id.Cluster][]Window, len(meters))
	for _, w := range r.windows {
		byCluster[w.ClusterID] = append(byCluster[w.ClusterID], windowOf(w))
	}
	out := make([]*lease, len(meters))
	for i, l := range r.leases {
		m := meters[i] // both in lease-id order
		if m.LeaseID != l.ID || len(byLease[l.ID]) == 0 {
			return nil, fmt.Errorf("lease %s has no meter or price", l.ID)
		}
		out[i] = leaseOf(l, m, r.now)
		out[i].terms.Prices, out[i].windows = byLease[l.ID], byCluster[l.ClusterID]
	}
	return out, nil
}

// leaseOf returns a lease with its meter, without prices and windows.
func leaseOf(r dbq.LeasesByIDRow, m dbq.LeaseMeter, now time.Time) *lease {
	l := &lease{
		LeasesByIDRow: r,
		meter:         meterOf(m),
		energy:        m.EnergyMj,
		frozen:        m.Frozen,
		unpostedSince: m.UnpostedSinceMs,
		run:           m.RunKey.Bytes,
		runSeq:        m.RunSeq,
		readAt:        now.UnixMilli(),
		terms: Terms{
			Life:     Interval{Start: r.CreatedAt.UnixMilli(), End: forever},
			SharePPM: int64(r.HostSharePpm),
		},
	}
	if r.EndedAt != nil {
		l.terms.Life.End = r.EndedAt.UnixMilli()
	}
	return l
}

// windowOf returns a stored window.
func windowOf(r dbq.ClusterWindow) Window {
	w := Window{OpenedMS: r.OpenedMs, ConfirmedMS: r.ConfirmedUntilMs}
	if r.ClosedMs != nil {
		w.ClosedMS = *r.ClosedMs
	}
	if r.DoubtFromMs != nil {
		w.DoubtMS = *r.DoubtFromMs
	}
	if r.LimitMs != nil {
		w.LimitMS = *r.LimitMs
	}
	return w
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

// raw is an id for a uuid[] parameter, in which the zero id stays a value.
func raw[T interface{ UUIDValue() (pgtype.UUID, error) }](v T) pgtype.UUID {
	u, _ := v.UUIDValue() // never fails
	u.Valid = true
	return u
}

// readLeases reads leases with their meters and all windows, without locks.
func readLeases(ctx context.Context, q *dbq.Queries, ids []id.Lease) ([]*lease, error) {
	return readMeters(ctx, q, ids, false)
}

// readMeters is readLeases; with above it reads as little of the past as withMeters does. A lease counts as settled
// here if it was when its meter was read: one that settles just then is posted in full by the commit that settles it,
// and its meter from before must not pass for the final one.
func readMeters(ctx context.Context, q *dbq.Queries, ids []id.Lease, above bool) ([]*lease, error) {
	rows, err := q.MetersByID(ctx, idList(ids...))
	if err != nil {
		return nil, fmt.Errorf("read meters: %w", err)
	}
	return leasesOf(ctx, q, rows, above)
}

// leasesOf is readMeters for meters that were read with whether each was final.
func leasesOf(ctx context.Context, q *dbq.Queries, rows []dbq.MetersByIDRow, above bool) ([]*lease, error) {
	meters := make([]dbq.LeaseMeter, len(rows))
	for i, r := range rows {
		meters[i] = r.LeaseMeter
	}
	leases, err := withMeters(ctx, q, meters, above)
	if err != nil {
		return nil, err
	}
	for i, l := range leases { // in the order of the meters
		l.SettledAt = rows[i].SettledAt
	}
	return leases, nil
}

func idList(ls ...id.Lease) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ls))
	for i, l := range ls {
		out[i] = raw(l)
	}
	return out
}

func sortByID(ls []*lease) {
	slices.SortFunc(ls, func(a, b *lease) int {
		x, y := a.ID.UUID(), b.ID.UUID()
		return bytes.Compare(x[:], y[:])
	})
}
