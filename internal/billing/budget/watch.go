package budget

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Watch is the budgets that clusters of a project count against, read under the lock of its org's wallet.
type Watch struct {
	org      id.Org
	project  string
	currency string
	budgets  []Budget
}

// NewWatch returns the Watch of a project, from the rows of BudgetsOf.
func NewWatch(org id.Org, project, currency string, rows []dbq.BudgetsOfRow) Watch {
	w := Watch{org: org, project: project, currency: currency}
	for _, r := range rows {
		w.budgets = append(w.budgets, of(dbq.BudgetsRow{
			ID:           r.ID,
			OrgID:        org,
			Project:      r.Project,
			Cap:          r.Cap,
			MaxRate:      r.MaxRate,
			MaxDurationS: r.MaxDurationS,
			Committed:    r.Committed,
			Currency:     currency,
			CreatedAt:    r.CreatedAt,
		}))
	}
	return w
}

// Left returns how much more money may be held for the cluster; nil: there is no cap.
func (w Watch) Left() *money.Nano {
	var least *money.Nano
	for _, b := range w.budgets {
		if left := b.Left(); left != nil && (least == nil || *left < *least) {
			least = left
		}
	}
	return least
}

// MaxDuration returns how long the cluster may run, in seconds; nil: as long as it likes.
func (w Watch) MaxDuration() *int64 {
	var least *int64
	for _, b := range w.budgets {
		if d := b.MaxDuration; d != nil && (least == nil || *d < *least) {
			least = d
		}
	}
	return least
}

// Admit refuses a cluster that is dearer than a budget allows. Fault: QuotaExceeded.
func (w Watch) Admit(rate money.Micro) error {
	for _, b := range w.budgets {
		if b.MaxRate != nil && rate > *b.MaxRate {
			return fault.New(fault.QuotaExceeded, "%s per hour is more than the %s per hour that %s allows for a cluster",
				rate.Plain(), b.MaxRate.Plain(), b.Name())
		}
	}
	return nil
}

// Refusal is why a cluster cannot start: what is left covers less than need.
func (w Watch) Refusal(need money.Nano) error {
	for _, b := range w.budgets {
		if left := b.Left(); left != nil && *left < need {
			return fault.New(fault.QuotaExceeded, "60 seconds of this cluster cost %s; %s has %s left of %s", need.Plain(),
				b.Name(), left.Plain(), b.Cap.Plain())
		}
	}
	return fault.New(fault.QuotaExceeded, "60 seconds of this cluster cost %s, more than a budget has left", need.Plain())
}

// QueueCommit queues the write that counts money which is being held for the cluster, in the transaction that holds it.
func (w Watch) QueueCommit(b *pgx.Batch, n money.Nano) error {
	if len(w.budgets) == 0 {
		return nil
	}
	for _, b := range w.budgets {
		if left := b.Left(); left != nil && n > *left {
			return fmt.Errorf("%s more for %s would exceed %s", n, w.org, b.ID)
		}
	}
	db.Write(b, (*dbq.Queries).CommitBudgets, dbq.CommitBudgetsParams{
		Amount:   int64(n),
		OrgID:    w.org,
		Currency: w.currency,
		Project:  w.project,
	})
	return nil
}

// Stored counts what volumes cost against the organisation's own budget, under the lock of its wallet. Volumes belong
// to no project. What is stored is charged even if the budget is used up: it then keeps clusters from starting.
func Stored(ctx context.Context, tx *db.Tx, org id.Org, currency string, n money.Nano) error {
	err := tx.Q.CommitBudgets(ctx, dbq.CommitBudgetsParams{Amount: int64(n), OrgID: org, Currency: currency})
	if err != nil {
		return fmt.Errorf("count %s of storage against the budget of %s: %w", n, org, err)
	}
	return nil
}

// Return counts money that was held for a cluster and is given back to the wallet, which is locked.
func Return(ctx context.Context, tx *db.Tx, org id.Org, cluster id.Cluster, currency string, n money.Nano) error {
	return giveBack(ctx, tx, dbq.ReturnToBudgetsParams{
		Amount:    int64(n),
		OrgID:     org,
		Currency:  currency,
		ClusterID: cluster,
	})
}

// Refund counts money that was paid for time of a cluster from since on and is given back to the wallet, which is
// locked. Budgets that were made later have not counted it, or not all of it: for them nothing changes.
func Refund(ctx context.Context, tx *db.Tx, org id.Org, cluster id.Cluster, currency string, n money.Nano,
	since time.Time) error {
	return giveBack(ctx, tx, dbq.ReturnToBudgetsParams{
		Amount:    int64(n),
		OrgID:     org,
		Currency:  currency,
		ClusterID: cluster,
		Since:     &since,
	})
}

func giveBack(ctx context.Context, tx *db.Tx, p dbq.ReturnToBudgetsParams) error {
	if err := tx.Q.ReturnToBudgets(ctx, p); err != nil {
		return fmt.Errorf("return %s of %s: %w", money.Nano(p.Amount), p.ClusterID, err)
	}
	return nil
}
