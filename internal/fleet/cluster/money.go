package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// authorise extends the paid time as far as money, budget and duration allow.
func authorise(ctx context.Context, w *writer) error {
	x := w.x
	a, err := metering.Authorise(ctx, w.tx, metering.AuthoriseRequest{
		Cluster: x.row.ID, Org: x.row.OrgID, Project: x.row.Project, Currency: x.row.Currency, Budget: x.row.Budget,
		NotAfter: notAfter(x.now, x.row.RunningAt, x.row.MaxDurationS), Since: x.row.RunningAt,
	})
	if err != nil {
		return err
	}
	x.row.RunUntil, x.reach = &a.RunUntil, &a.Reach
	x.row.MoneyReason = string(limitReasons[a.Limit])
	return nil
}

// notAfter returns the end that max_duration sets; before the cluster runs, as if it ran from now.
func notAfter(now time.Time, running *time.Time, seconds *int64) *time.Time {
	if seconds == nil {
		return nil
	}
	if running != nil {
		now = *running
	}
	t := now.Add(time.Duration(*seconds) * time.Second)
	return &t
}

// limitReasons are the reasons for which a cluster ends when a limit keeps it from being extended.
var limitReasons = map[metering.Limit]lifecycle.Reason{
	metering.LimitNone:     lifecycle.ReasonNone,
	metering.LimitFunds:    lifecycle.ReasonFundsExhausted,
	metering.LimitBudget:   lifecycle.ReasonBudgetExhausted,
	metering.LimitOrg:      lifecycle.ReasonBudgetExhausted,
	metering.LimitDuration: lifecycle.ReasonMaxDuration,
}

// lapsed reports whether the paid time has passed: hosts have stopped there on their own, and more money comes too
// late.
func (x *lockedCluster) lapsed() bool {
	return x.row.GoAt != nil && x.row.RunUntil != nil && !x.now.Before(*x.row.RunUntil)
}

// reportsComplete reports whether the hosts of an ended cluster can report nothing more that is billed: settling before
// would reject their last segments. Once the barrier was opened, a rank may have started without a report.
func (x *lockedCluster) reportsComplete() bool {
	return !x.window && (x.allGone() || (x.row.RunningAt == nil && x.row.GoAt == nil))
}

// settle posts what can be posted and returns what is no longer needed to the wallet.
func settle(ctx context.Context, w *writer) error {
	x := w.x
	if x.row.SettledAt != nil {
		return nil
	}
	done, err := metering.Settle(ctx, w.tx, x.row.ID)
	if err != nil || !done {
		return err
	}
	reserved, err := hasReserved(ctx, w.tx.Q, x) // released in its own transaction: see bonds.go
	if err == nil && !reserved {
		x.row.SettledAt = &x.now
	}
	return err
}

// tend handles the money when the watchdog looks at a cluster, in a transaction that locks no host: it judges pending
// time, confirms and posts proven time, extends the paid time, warns the renter, and settles an ended cluster.
func (c *Clusters) tend(ctx context.Context, tx *db.Tx, cl id.Cluster) error {
	x, err := c.lock(ctx, tx, cl)
	if err != nil {
		return err
	}
	w := c.writer(tx, x)
	if x.row.SettledAt == nil && x.row.RunningAt != nil {
		cases, err := readPending(ctx, tx.Q, x)
		if err != nil {
			return fmt.Errorf("pending time of cluster %s: %w", cl, err)
		}
		if x.judge(cases); len(x.writes) > 0 { // what follows depends on it
			if err := w.save(ctx); err != nil {
				return err
			}
		}
	}
	if !lifecycle.State(x.row.State).Ended() {
		return w.tendLive(ctx)
	}
	if x.row.SettledAt != nil || !x.reportsComplete() {
		return nil
	}
	x.addWrite(settle)
	return w.save(ctx)
}

// tendLive is tend for a cluster that has not ended.
func (w *writer) tendLive(ctx context.Context) error {
	x := w.x
	if x.window { // nothing is confirmed while a rank is in doubt
		span, split := x.unconfirmed()
		if !split {
			x.confirm(span)
		} else {
			facts, err := readCase(ctx, w.tx.Q, x, span)
			if err != nil {
				return err
			}
			x.confirmOrSplit(facts)
		}
	}
	if x.row.RunningAt != nil { // also while it is suspended: earlier time may still be unposted
		cl := x.row.ID
		x.addWrite(func(ctx context.Context, w *writer) error { return metering.Post(ctx, w.tx, cl) })
	}
	if !x.lapsed() && x.living() { // while every rank waits for another host nothing is paid ahead
		x.addWrite(authorise)
	}
	if err := w.run(ctx); err != nil {
		return err
	}
	if s := lifecycle.State(x.row.State); (s == lifecycle.Running || s == lifecycle.Degraded) && x.living() {
		m, err := readMeans(ctx, w.tx.Q, x)
		if err != nil {
			return err
		}
		x.warn(m)
	}
	return w.save(ctx)
}

// warnings are the thresholds of runway at which renters are notified, nearest first.
var warnings = []struct {
	left     time.Duration
	name     string
	severity notify.Severity
}{
	{10 * time.Minute, "10 minutes", notify.Bad},
	{time.Hour, "1 hour", notify.Warn},
	{24 * time.Hour, "24 hours", notify.Info},
}

// dip is how far a cluster's runway has fallen: the threshold of the last warning (0: none), and how many times it has
// risen again since the cluster began.
type dip struct {
	reported time.Duration
	rises    int
}

// sink returns the dip after a runway of left, and whether a threshold was crossed of which this dip has given no
// warning. Each threshold is notified once per dip, the nearest one first; those crossed together with it are skipped.
// A dip ends when the runway is half as long again as the threshold of the last warning: clusters that share a wallet
// take turns in holding its money, so that each one's runway swings a little, and automatic top-ups keep it near one
// value.
func (d dip) sink(left time.Duration) (next dip, tell bool) {
	level := time.Duration(0)
	for i := len(warnings) - 1; i >= 0; i-- {
		if left <= warnings[i].left {
			level = warnings[i].left
		}
	}
	switch {
	case d.reported != 0 && left > d.reported+d.reported/2:
		return dip{level, d.rises + 1}, false // thresholds that are still crossed were notified on the way down
	case level != 0 && (d.reported == 0 || level < d.reported):
		return dip{level, d.rises}, true
	}
	return d, false
}

// warn notifies the renter, once per threshold and dip, how long the money lasts.
func (x *lockedCluster) warn(m means) {
	left, what := x.runway(m)
	d, tell := dip{time.Duration(x.row.RunwayToldS) * time.Second, int(x.row.RunwayDips)}.sink(left)
	x.row.RunwayToldS, x.row.RunwayDips = int32(d.reported/time.Second), int32(d.rises)
	if !tell {
		return
	}
	for _, w := range warnings {
		if w.left != d.reported {
			continue
		}
		x.notices = append(x.notices, notify.Notice{
			Org:      x.row.OrgID,
			Key:      fmt.Sprintf("runway:%s:%s:%d", w.name, x.row.ID, d.rises),
			Severity: w.severity,
			Title:    fmt.Sprintf("%s has less than %s left", x.row.Name, w.name),
			Body: fmt.Sprintf("%s lasts until about %s UTC. Then the cluster is stopped in order.", what,
				x.now.Add(left).Format("15:04 on 2 January")),
			Object: x.row.ID.String(),
		})
	}
}

// means is what an organisation has and spends.
type means struct {
	burn   int64 // per hour, of all that it runs
	wallet money.Nano
}

// readMeans reads the means, if money limits how long the cluster can run.
func readMeans(ctx context.Context, q *dbq.Queries, x *lockedCluster) (m means, err error) {
	switch lifecycle.Reason(x.row.MoneyReason) {
	case lifecycle.ReasonBudgetExhausted, lifecycle.ReasonMaxDuration:
		return m, nil
	}
	if m.burn, err = q.OrgBurn(ctx, x.row.OrgID); err != nil {
		return m, fmt.Errorf("burn of %s: %w", x.row.OrgID, err)
	}
	m.wallet, err = ledger.Spendable(ctx, q, ledger.Wallet(x.row.OrgID, x.row.Currency))
	return m, err
}

// runway returns how long the cluster can run, and what limits it. The time that is held for it is the minimum; the
// money in the wallet is shared by all clusters of the organisation.
func (x *lockedCluster) runway(m means) (time.Duration, string) {
	held := max(0, deref(x.row.RunUntil).Sub(x.now))
	reach := held
	if x.reach != nil {
		reach = max(held, x.reach.Sub(x.now))
	}
	reason := lifecycle.Reason(x.row.MoneyReason)
	switch reason {
	case lifecycle.ReasonBudgetExhausted:
		return reach, "The budget"
	case lifecycle.ReasonMaxDuration:
		return reach, "The longest duration you set"
	}
	const month = 30 * 24 * time.Hour
	left := month
	if m.burn > 0 {
		left = held + time.Duration(min(money.MillisOf(m.wallet, money.Micro(m.burn)), month.Milliseconds()))*time.Millisecond
	}
	if reason == lifecycle.ReasonFundsExhausted {
		left = min(left, reach)
	}
	return left, "Your credit"
}
