package metering

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// SettleAfter is how long after a lease's end its journal may still arrive.
const SettleAfter = 24 * time.Hour

// Post books what the cluster's proven, confirmed time costs beyond what is posted already, of those of its leases that
// are due: when a step has gathered, when some has waited for 65 minutes, when no window is open.
func Post(ctx context.Context, tx *db.Tx, cluster id.Cluster) error {
	leases, err := lockCluster(ctx, tx, cluster)
	if err != nil {
		return err
	}
	open := unsettled(leases)
	was := postedOf(open)
	if err := charge(ctx, tx, open, inSteps); err != nil || postedOf(open) == was {
		return err
	}
	notifySpent(ctx, tx, open)
	return nil
}

// Settle posts what can be posted and gives back what can no longer be needed of the hold. It is done when every
// lease has ended and either its whole time is proven, its final segment has arrived, or SettleAfter has passed; then
// the rest of the hold goes back to the wallet and later segments are refused. Call it at the end and then now and
// again until done. Calling it again after that changes nothing.
func Settle(ctx context.Context, tx *db.Tx, cluster id.Cluster) (done bool, err error) {
	leases, err := lockCluster(ctx, tx, cluster)
	if err != nil || len(leases) == 0 {
		return err == nil, err
	}
	open := unsettled(leases)
	if err := charge(ctx, tx, open, inFull); err != nil {
		return false, err
	}
	if err := settleLeases(ctx, tx, open); err != nil {
		return false, err
	}
	if err := bookCredits(ctx, tx, cluster, leases); err != nil {
		return false, err
	}
	if err := refundHold(ctx, tx, leases); err != nil {
		return false, err
	}
	notifySpent(ctx, tx, leases[:1])
	return len(unsettled(leases)) == 0, nil
}

func unsettled(leases []*lease) (out []*lease) {
	for _, l := range leases {
		if !l.settled() {
			out = append(out, l)
		}
	}
	return out
}

// settleLeases stamps those whose charge cannot change any more.
func settleLeases(ctx context.Context, tx *db.Tx, leases []*lease) error {
	leases = slices.DeleteFunc(slices.Clone(leases), func(l *lease) bool { return !l.ended() || l.frozen })
	if len(leases) == 0 {
		return nil
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	// Counting a lease's segments takes as long as it ran: only where nothing cheaper decides.
	open := slices.DeleteFunc(slices.Clone(leases), func(l *lease) bool {
		return l.proven() ||
			now.Sub(*l.EndedAt) >= SettleAfter
	})
	heard, err := reportsComplete(ctx, tx.Q, open)
	if err != nil {
		return err
	}
	var ids []pgtype.UUID
	for _, l := range leases {
		if heard[l.ID] && !l.waits() || !slices.Contains(open, l) {
			l.SettledAt = &now
			ids = append(ids, raw(l.ID))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	if err := tx.Q.SettleLeases(ctx, ids); err != nil {
		return fmt.Errorf("settle leases: %w", err)
	}
	return nil
}

// proven reports whether the charge of an ended lease is complete: all time that may still be billed is proven, and
// the windows leave all of it to be posted.
func (l *lease) proven() bool {
	for _, w := range l.windows {
		if w.running() && w.ConfirmedMS < l.terms.Life.End {
			return false
		}
	}
	if l.waits() {
		return false
	}
	return len(l.possible(forever, forever).Minus(l.meter.Proven)) == 0
}

// waits reports whether it is not decided yet of some time of the lease whether it counts.
func (l *lease) waits() bool {
	return slices.ContainsFunc(l.windows, func(w Window) bool {
		return w.pending() &&
			w.undecided().And(l.terms.Life).Len() > 0
	})
}

// reportsComplete returns of which leases everything has arrived that their hosts will ever send: no run has a hole,
// and the final segment of the last start is stored.
func reportsComplete(ctx context.Context, q *dbq.Queries, leases []*lease) (map[id.Lease]bool, error) {
	if len(leases) == 0 {
		return nil, nil
	}
	ids := make([]pgtype.UUID, len(leases))
	epoch := map[id.Lease]int32{}
	for i, l := range leases {
		ids[i] = raw(l.ID)
		epoch[l.ID] = l.Epoch
	}
	runs, err := q.SegmentRuns(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read segment runs: %w", err)
	}
	whole, final := map[id.Lease]bool{}, map[id.Lease]bool{}
	for _, r := range runs {
		if _, seen := whole[r.LeaseID]; !seen {
			whole[r.LeaseID] = true
		}
		whole[r.LeaseID] = whole[r.LeaseID] && r.Whole
		final[r.LeaseID] = final[r.LeaseID] || r.Final && r.Epoch == epoch[r.LeaseID]
	}
	for l := range final {
		final[l] = final[l] && whole[l]
	}
	return final, nil
}

// refundHold gives back to the wallet what the hold has beyond what may still be charged.
func refundHold(ctx context.Context, tx *db.Tx, leases []*lease) error {
	l := leases[0]
	hold := ledger.Hold(l.RenterOrgID, l.ClusterID, l.Currency)
	wallet := ledger.Wallet(l.RenterOrgID, l.Currency)
	books, err := ledger.Lock(ctx, tx, hold, wallet)
	if err != nil {
		return err
	}
	from, until := int64(forever), int64(0)
	for _, l := range leases {
		if !l.ended() {
			from, until = min(from, l.CoveredFromMs), max(until, l.runUntil())
		}
	}
	spare := books.Balance(hold) - need(leases, from, until)
	if spare <= 0 {
		return retire(ctx, books, hold, leases)
	}
	if err := budget.Return(ctx, tx, l.RenterOrgID, l.ClusterID, l.Currency, spare); err != nil {
		return err
	}
	if _, err = books.Post(ctx, ledger.Entry{
		Kind: "hold_release", Key: "hold_release:" + id.New[id.LedgerTx]().String(), Ref: l.ClusterID.String(),
		Memo:      "no longer needed",
		Transfers: []ledger.Transfer{{Debit: hold, Credit: wallet, Amount: spare}},
	}); err != nil {
		return err
	}
	return retire(ctx, books, hold, leases)
}

// retire takes the hold of a settled cluster out of the sums of what its org has.
func retire(ctx context.Context, books *ledger.Locked, hold ledger.Account, leases []*lease) error {
	if len(unsettled(leases)) > 0 {
		return nil
	}
	return books.Retire(ctx, hold)
}
