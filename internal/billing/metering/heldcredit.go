package metering

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// HeldCredit is a credit for a host's failure that waits for a person: the renter could have caused the failure, and
// the credit exceeds what is booked without a decision.
type HeldCredit = client.HeldCredit

// maxHeld bounds the list of held credits.
const maxHeld = 200

// HeldCredits lists the credits that wait for a decision, oldest first, at most 200. Only an admin may.
func (s *Leases) HeldCredits(ctx context.Context, who account.Principal) ([]HeldCredit, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, err
	}
	rows, err := s.d.Q.HeldServiceCredits(ctx, maxHeld)
	if err != nil {
		return nil, fmt.Errorf("read held credits: %w", err)
	}
	out := make([]HeldCredit, 0, len(rows))
	for _, r := range rows {
		leases, err := readLeases(ctx, s.d.Q, []id.Lease{r.LeaseID})
		if err != nil {
			return nil, err
		}
		segs, err := s.d.Q.SegmentsWithin(ctx, r.LeaseID, r.FromMs, r.ThroughMs)
		if err != nil {
			return nil, fmt.Errorf("read segments of %s: %w", r.LeaseID, err)
		}
		rest := creditOf(leases[0], segs, Interval{Start: r.FromMs, End: r.ThroughMs}) - money.Nano(r.Credited)
		if rest <= 0 && r.Settled {
			continue // the part that needs no decision was all of it
		}
		out = append(out, HeldCredit{
			Lease:    r.LeaseID,
			Cluster:  r.ClusterID,
			Rank:     int(r.Rank),
			Host:     r.HostID,
			HostName: r.HostName,
			Renter:   r.RenterOrgID,
			Operator: r.HostOrgID,
			Reason:   r.Reason,
			From:     time.UnixMilli(r.FromMs).UTC(),
			To:       time.UnixMilli(r.ThroughMs).UTC(),
			Amount:   max(0, rest),
			Booked:   money.Nano(r.Credited),
			Currency: r.Currency,
			At:       r.CreatedAt.UTC(),
		})
	}
	return out, nil
}

// DecideCredit approves or refuses a held credit. An approved one is booked in this transaction, and the rest of it as
// later charges arrive. Only an admin may; the audit log keeps the reason. Fault: NotFound when no such credit is held.
func (s *Leases) DecideCredit(ctx context.Context, who account.Principal, l id.Lease, approve bool, why string,
	once idem.Request) (id.Lease, idem.Outcome, error) {
	if err := account.RequireStaff(who); err != nil {
		return l, idem.Outcome{}, err
	}
	return idem.Once(ctx, s.d, once, func(ctx context.Context, tx *db.Tx) (id.Lease, error) {
		cluster, err := tx.Q.ClusterOfLease(ctx, l)
		if err != nil && !db.NoRows(err) {
			return l, fmt.Errorf("read lease %s: %w", l, err)
		}
		// What returns a part of the fee and what pays relief from it wait for each other, at the cluster's row.
		if err := tx.Q.LockClusterOfCredit(ctx, cluster); err != nil && !db.NoRows(err) {
			return l, fmt.Errorf("lock cluster %s: %w", cluster, err)
		}
		leases, lockErr := lockCluster(ctx, tx, cluster) // before the row: a settlement books under the same locks
		if lockErr != nil {
			return l, lockErr
		}
		state, action := creditRefused, "credit.refuse"
		if approve {
			state, action = creditBooked, "credit.approve"
		}
		_, err = tx.Q.DecideServiceCredit(ctx, dbq.DecideServiceCreditParams{
			LeaseID:   l,
			State:     state,
			DecidedBy: raw(who.User),
			Why:       why,
		})
		if db.NoRows(err) {
			return l, fault.New(fault.NotFound, "no credit of this lease waits for a decision")
		}
		if err != nil {
			return l, fmt.Errorf("decide the credit of %s: %w", l, err)
		}
		if err := audit.Record(ctx, tx, who.Event(action, l.String(), map[string]any{"reason": why})); err != nil {
			return l, err
		}
		if !approve {
			return l, nil
		}
		return l, bookCredits(ctx, tx, cluster, leases)
	})
}
