package budget

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// levels are the parts of a cap at which its owner is notified, in percent, highest first.
var levels = []int{100, 80, 50}

// Level returns the highest level that n has reached, 0 below all.
func Level(n, limit money.Nano) int {
	for _, p := range levels {
		// limit × p without overflow: caps are at most 10^18.
		whole, rest := limit/100, limit%100
		if n >= whole*money.Nano(p)+(rest*money.Nano(p)+99)/100 {
			return p
		}
	}
	return 0
}

// User is a cluster that counts against the budgets of its org.
type User struct {
	Org      id.Org
	Cluster  id.Cluster
	Currency string
}

// Spent notifies of the levels that the clusters' bookings have reached. Call it after the transaction that booked, so
// that nothing waits for it with meters and earnings locked. If a call is lost, NotifyAll does its work.
func Spent(ctx context.Context, tx *db.Tx, users ...User) error {
	rows, err := spentOf(ctx, tx, users)
	if err != nil {
		return err
	}
	for _, r := range rows {
		n := Notice(r.OrgID, r.ID.String(), nameOf(r.Project), "spent", money.Nano(r.Spent), money.Nano(r.Cap), r.Currency)
		if err := Notify(ctx, tx, n); err != nil {
			return err
		}
	}
	return nil
}

// watched is how many budgets NotifyAll reads at a time.
const watched = 200

// NotifyAll notifies of the levels that all budgets have reached, for notices that were lost after a booking, and
// returns how many budgets it checked. Each level is notified once.
func NotifyAll(ctx context.Context, d *db.DB) (n int, err error) {
	for after := (id.Budget{}); ; {
		rows, err := d.Q.BudgetsToWatch(ctx, pgtype.UUID{Bytes: after.UUID(), Valid: true}, watched)
		if err != nil {
			return n, fmt.Errorf("read spending: %w", err)
		}
		var due []*notify.Notice
		for _, r := range rows {
			after = r.ID
			if n := Notice(r.OrgID, r.ID.String(), nameOf(r.Project), "spent", money.Nano(r.Spent), money.Nano(r.Cap),
				r.Currency); n != nil {
				due = append(due, n)
			}
		}
		if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			for _, n := range due {
				if err := Notify(ctx, tx, n); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return n, fmt.Errorf("notify: %w", err)
		}
		if n += len(rows); len(rows) < watched {
			return n, nil
		}
	}
}

// Exhausted notifies that a budget keeps the cluster from being extended: all of it is spent or held, but for less than
// the cluster needs. It notifies early, when most of that is held and may come back, and once more when it is spent.
func (w Watch) Exhausted(ctx context.Context, tx *db.Tx, cluster id.Cluster) error {
	least := w.Left()
	if least == nil {
		return nil
	}
	rows, err := spentOf(ctx, tx, []User{{w.org, cluster, w.currency}})
	if err != nil {
		return err
	}
	for _, r := range rows {
		limit, spent := money.Nano(r.Cap), money.Nano(r.Spent)
		if max(0, limit-money.Nano(r.Committed)) != *least {
			continue
		}
		if err := Notify(ctx, tx, exhausted(r, spent, limit)); err != nil {
			return err
		}
	}
	return nil
}

func exhausted(r dbq.SpentOfBudgetsRow, spent, limit money.Nano) *notify.Notice {
	name := nameOf(r.Project)
	n := &notify.Notice{
		Org:      r.OrgID,
		Key:      fmt.Sprintf("budget:%s:%d:held", r.ID, int64(limit)),
		Severity: notify.Warn,
		Object:   r.ID.String(),
		Forecast: true,
		Title:    fmt.Sprintf("All of %s is spent or held", name),
		Body: fmt.Sprintf("%s of %s %s is spent; the rest is held for running clusters, at most an hour ahead, and what "+
			"they do not use is released. They run to the end of their paid time and then shut down cleanly; no other cluster "+
			"can start. Raise the budget to let them continue.",
			spent.Plain(), limit.Plain(), r.Currency),
	}
	if Level(spent, limit) >= 80 { // what is held will hardly change it
		n.Key = keyOf(r.ID.String(), limit, 100)
	}
	return n
}

func spentOf(ctx context.Context, tx *db.Tx, users []User) ([]dbq.SpentOfBudgetsRow, error) {
	if len(users) == 0 {
		return nil, nil
	}
	var orgs, clusters []pgtype.UUID
	var currencies []string
	for _, u := range users {
		orgs = append(orgs, pgtype.UUID{Bytes: u.Org.UUID(), Valid: true})
		clusters = append(clusters, pgtype.UUID{Bytes: u.Cluster.UUID(), Valid: true})
		currencies = append(currencies, u.Currency)
	}
	rows, err := tx.Q.SpentOfBudgets(ctx, orgs, clusters, currencies)
	if err != nil {
		return nil, fmt.Errorf("read spending: %w", err)
	}
	return rows, nil
}

// Notice returns the notice of a level of a budget called name, once for each object, level and cap; nil below the
// lowest level. What names what counts: "spent", or "spent or held".
func Notice(org id.Org, object, name, what string, counted, limit money.Nano, currency string) *notify.Notice {
	level := Level(counted, limit)
	if level == 0 {
		return nil
	}
	n := &notify.Notice{
		Org:      org,
		Key:      keyOf(object, limit, level),
		Severity: notify.Info,
		Object:   object,
		Forecast: true,
		Title:    fmt.Sprintf("%d %% of %s is %s", level, name, what),
		Body: fmt.Sprintf("%s of %s %s. When nothing is left, clusters that count against the budget shut down cleanly; "+
			"raise the budget to let them continue.",
			counted.Plain(), limit.Plain(), currency),
	}
	switch level {
	case 80:
		n.Severity = notify.Warn
	case 100:
		n.Severity, n.Title = notify.Bad, "Used up: "+name
		n.Body = fmt.Sprintf("All of %s %s is %s. Clusters that count against it run to the end of their paid time and "+
			"then shut down cleanly; nothing more is spent. Raise the budget to let them continue.",
			limit.Plain(), currency, what)
	}
	return n
}

// keyOf returns the key of one notice of a level. After a change of the cap there is a new notice.
func keyOf(object string, limit money.Nano, level int) string {
	return fmt.Sprintf("budget:%s:%d:%d", object, int64(limit), level)
}

// Notify writes a notice of a level, if there is one.
func Notify(ctx context.Context, tx *db.Tx, n *notify.Notice) error {
	if n == nil {
		return nil
	}
	_, err := notify.Add(ctx, tx, *n)
	return err
}
