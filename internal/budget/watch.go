package budget

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// Watch is the budgets that clusters of a project count against, read under the lock of its org's wallet.
type Watch struct {
	org      id.Org
	project  string
	currency string
	budgets  []Budget
}

// Ask reads them as part of a pipe that has locked the wallet of org before. Its result reads the answer, after Send.
func Ask(ctx context.Context, p *db.Pipe, org id.Org, project, currency string) (read func() Watch) {
	asked := p.Q.BudgetsOf(ctx, []dbq.BudgetsOfParams{{OrgID: org, Currency: currency, Project: project}})
	return func() Watch {
		var rows []dbq.BudgetsOfRow
		asked.Query(db.Keep(p, &rows))
		w := Watch{org: org, project: project, currency: currency}
		for _, r := range rows {
			w.budgets = append(w.budgets, of(dbq.Budget{
				ID: r.ID, OrgID: org, Project: r.Project, Cap: r.Cap, MaxRate: r.MaxRate, MaxDurationS: r.MaxDurationS, Committed: r.Committed,
				Currency: currency, CreatedAt: r.CreatedAt,
			}))
		}
		return w
	}
}

// Left is how much more money may be held for the cluster; nil: no cap says otherwise.
func (w Watch) Left() *money.Nano {
	var least *money.Nano
	for _, b := range w.budgets {
		if left := b.Left(); left != nil && (least == nil || *left < *least) {
			least = left
		}
	}
	return least
}

// MaxDuration is how long the cluster may run, in seconds; nil: as long as it likes.
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
			return fault.New(fault.QuotaExceeded, "%s per hour is more than the %s per hour that %s allows for a cluster", rate.Plain(), b.MaxRate.Plain(), b.Name())
		}
	}
	return nil
}

// Refusal is why a cluster cannot start: what is left covers less than need.
func (w Watch) Refusal(need money.Nano) error {
	for _, b := range w.budgets {
		if left := b.Left(); left != nil && *left < need {
			return fault.New(fault.QuotaExceeded, "60 seconds of this cluster cost %s; %s has %s left of %s", need.Plain(), b.Name(), left.Plain(), b.Cap.Plain())
		}
	}
	return fault.New(fault.QuotaExceeded, "60 seconds of this cluster cost %s, more than a budget has left", need.Plain())
}

// Commit counts money that is being held for the cluster, in the transaction that holds it, and tells of what that
// leaves. It only writes, so it may be part of a pipe.
func (w Watch) Commit(ctx context.Context, tx *db.Tx, n money.Nano) error {
	if len(w.budgets) == 0 {
		return nil
	}
	for _, b := range w.budgets {
		if left := b.Left(); left != nil && n > *left {
			return fmt.Errorf("budget: %s more for %s would exceed %s", n, w.org, b.ID)
		}
	}
	err := tx.Q.CommitBudgets(ctx, dbq.CommitBudgetsParams{Amount: int64(n), OrgID: w.org, Currency: w.currency, Project: w.project})
	if err != nil {
		return fmt.Errorf("budget: commit %s for %s: %w", n, w.org, err)
	}
	for _, b := range w.budgets {
		if b.Cap == nil {
			continue
		}
		if err := Tell(ctx, tx, b.notice(b.Committed+n)); err != nil {
			return err
		}
	}
	return nil
}

// Exhausted tells that a budget keeps the cluster from being extended: all of it is committed, but for less than the
// cluster needs.
func (w Watch) Exhausted(ctx context.Context, tx *db.Tx) error {
	least := w.Left()
	for _, b := range w.budgets {
		if left := b.Left(); left != nil && *left == *least {
			if err := Tell(ctx, tx, b.notice(*b.Cap)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Return counts money that was held for a cluster, or paid for it, and is given back to the wallet, which is locked.
func Return(ctx context.Context, tx *db.Tx, org id.Org, cluster id.Cluster, currency string, n money.Nano) error {
	err := tx.Q.ReturnToBudgets(ctx, dbq.ReturnToBudgetsParams{Amount: int64(n), OrgID: org, Currency: currency, ClusterID: cluster})
	if err != nil {
		return fmt.Errorf("budget: return %s of %s: %w", n, cluster, err)
	}
	return nil
}

// levels are the parts of a cap at which its owner is told, in percent, highest first.
var levels = []int{100, 80, 50}

// Level is the highest level that committed has reached, 0 below all.
func Level(committed, limit money.Nano) int {
	for _, p := range levels {
		// limit × p without overflow: caps are at most 10^18.
		whole, rest := limit/100, limit%100
		if committed >= whole*money.Nano(p)+(rest*money.Nano(p)+99)/100 {
			return p
		}
	}
	return 0
}

// notice is what to tell when so much is committed; nil below the lowest level. A cap that was changed is told of anew.
func (b Budget) notice(committed money.Nano) *notify.Notice {
	return Notice(b.Org, b.ID.String(), b.Name(), committed, *b.Cap, b.Currency)
}

// Notice tells of a level of a budget called name, once for each object, level and cap; nil below the lowest level.
func Notice(org id.Org, object, name string, committed, limit money.Nano, currency string) *notify.Notice {
	level := Level(committed, limit)
	if level == 0 {
		return nil
	}
	n := &notify.Notice{
		Org: org, Key: fmt.Sprintf("budget:%s:%d:%d", object, int64(limit), level), Severity: notify.Info, Object: object,
		Title: fmt.Sprintf("%d %% of %s is spent or held", level, name),
		Body: fmt.Sprintf("%s of %s %s. When nothing is left, clusters that count against it are stopped in order; raise it to let them run on.",
			committed.Plain(), limit.Plain(), currency),
	}
	switch level {
	case 80:
		n.Severity = notify.Warn
	case 100:
		n.Severity, n.Title = notify.Bad, "Used up: "+name
		n.Body = fmt.Sprintf("All of %s %s is spent or held. Clusters that count against it run to the end of their paid time and are then stopped in order; nothing more is spent. Raise it to let them run on.",
			limit.Plain(), currency)
	}
	return n
}

// Tell writes a notice of a level, if there is one.
func Tell(ctx context.Context, tx *db.Tx, n *notify.Notice) error {
	if n == nil {
		return nil
	}
	_, err := notify.Add(ctx, tx, *n)
	return err
}
