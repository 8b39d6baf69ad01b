package metering

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/text"
)

// How far the ledger may be behind what is proven, in ms. An entry costs more than the segment it is for, so a running
// lease is booked in steps; the hold covers what waits, as it covers what is not proven yet.
const (
	firstPostStepMS = 15 * 60_000 // of billed time: so much is booked at once of a young lease
	postStepMS      = 60 * 60_000 // and so much of an old one
	postWithinMS    = 65 * 60_000 // nothing waits longer, however little it is
)

// postStep returns how much billed time is booked at once of a lease of which booked ms are in the ledger: a quarter of
// that, within bounds. So whatever follows the ledger, such as notices of budgets, lags by a part of what was spent.
func postStep(booked int64) int64 { return min(max(booked/4, firstPostStepMS), postStepMS) }

// steps is which leases are booked by a charge.
type steps int

const (
	inSteps steps = iota // those that are due
	inFull               // all, so that meter and books agree
)

// due reports whether p, which waits for the ledger, is booked now: enough has gathered, it has waited long enough, or
// no more will come soon because no window is open.
func (l *lease) due(p Posting) bool {
	if p.BilledMS >= postStep(l.meter.PostedBilledMS) || l.ended() ||
		l.unpostedSince != 0 && l.readAt-l.unpostedSince >= postWithinMS {
		return true
	}
	for _, w := range l.windows {
		if w.running() {
			return false
		}
	}
	return true
}

// post returns what of p is booked, where p is the difference between the meter after a charge and the ledger, and the
// meter as it is then. What is not booked stays in the meter's exact numerator and is part of the next posting.
func (l *lease) post(after Meter, p Posting, how steps) (Meter, Posting, int64) {
	if !l.frozen && (how == inFull || l.due(p)) {
		return after, p, 0
	}
	// The time is kept, the money waits.
	after.Posted, after.HostPosted, after.PostedBilledMS = l.meter.Posted, l.meter.HostPosted, l.meter.PostedBilledMS
	since := l.unpostedSince
	switch {
	case p == Posting{}:
		since = 0
	case since == 0:
		since = l.readAt
	}
	return after, Posting{}, since
}

// UntouchedPaid and UntouchedPosted bound how long Post and Authorise need not be called for a cluster: Authorise
// changes nothing while more than the first is left of a lease's paid time, and Post posts what has waited for longer
// than the second.
const (
	UntouchedPaid   = fullStepMS / 2 * time.Millisecond
	UntouchedPosted = postWithinMS * time.Millisecond
)

// literal returns {start,end,start,end,…}: a bigint[] as PostgreSQL reads it.
func literal(s Set) string {
	b := []byte{'{'}
	for k, i := range s {
		if k > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, i.Start, 10)
		b = append(b, ',')
		b = strconv.AppendInt(b, i.End, 10)
	}
	return string(append(b, '}'))
}

// charge books what the proven time of leases, whose meters are locked, costs beyond what is booked: of all of them or
// of those that are due.
func charge(ctx context.Context, tx *db.Tx, leases []*lease, how steps) error {
	b := &pgx.Batch{}
	if err := queueCharge(ctx, tx, b, leases, nil, nil, how); err != nil {
		return err
	}
	if err := tx.Send(ctx, b); err != nil {
		return fmt.Errorf("write meters and charges: %w", err)
	}
	return nil
}

// queueCharge queues the writes of charge, after those that add fresh time to the leases and the segments it comes
// from.
func queueCharge(ctx context.Context, tx *db.Tx, b *pgx.Batch, leases []*lease, add map[id.Lease]fresh,
	from []*received, how steps) error {
	var entries []ledger.Entry
	var changed []*lease
	for _, l := range leases {
		f, news := add[l.ID]
		next, p := Charge(l.meter, f.intervals, l.windows, l.terms)
		if p.Renter < 0 || p.Host < 0 || p.Fee < 0 {
			return fmt.Errorf("lease %s: posting %+v would take money back", l.ID, p)
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
	booking, err := ledger.Prepare(ctx, tx, entries) // a key is a meter's total: no other transaction can have used it
	if err != nil {
		return fmt.Errorf("post usage: %w", err)
	}
	if err := queueSegments(b, from); err != nil {
		return err
	}
	db.Write(b, (*dbq.Queries).UpdateMeters, metersOf(changed))
	booking.QueueWrite(b)
	return nil
}

// postedOf returns what is booked of the leases in all.
func postedOf(leases []*lease) (n money.Nano) {
	for _, l := range leases {
		n += l.meter.Posted
	}
	return n
}

// notifySpent notifies of what the leases' clusters have spent of the budgets they count against, once tx has
// committed.
func notifySpent(ctx context.Context, tx *db.Tx, leases []*lease) {
	var users []budget.User
	for _, l := range leases {
		if u := (budget.User{Org: l.RenterOrgID, Cluster: l.ClusterID, Currency: l.Currency}); !slices.Contains(users, u) {
			users = append(users, u)
		}
	}
	tx.AfterCommitTx(ctx, func(ctx context.Context, tx *db.Tx) error { return budget.Spent(ctx, tx, users...) })
}

// fresh is time that was not known to be proven before.
type fresh struct {
	intervals []Interval
	energy    int64 // mJ
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
		p.RunKeys, p.RunSeqs = append(p.RunKeys, uuidOf(l.run)), append(p.RunSeqs, l.runSeq)
	}
	return p
}

// usageEntry books a posting. Its key is the lease's cumulative charge after it, which only grows.
func usageEntry(l *lease, after Meter, p Posting) ledger.Entry {
	hold := ledger.Hold(l.RenterOrgID, l.ClusterID, l.Currency)
	e := ledger.Entry{
		Kind: "usage",
		Key:  fmt.Sprintf("usage:%s:%d", l.ID, int64(after.Posted)),
		Memo: fmt.Sprintf("node %d, %s", l.Rank, text.Duration(time.Duration(p.BilledMS)*time.Millisecond)),
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
