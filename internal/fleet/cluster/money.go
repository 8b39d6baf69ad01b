package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
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
	x.row.RunUntil = &a.RunUntil
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
func (b *billing) lapsed() bool {
	return b.row.GoAt != nil && b.row.RunUntil != nil && !b.now.Before(*b.row.RunUntil)
}

// reportsComplete reports whether the hosts of an ended cluster can report nothing more that is billed: settling before
// would reject their last segments. Once the barrier was opened, a rank may have started without a report.
func (b *billing) reportsComplete() bool {
	return !b.window && (b.members.allGone() || (b.row.RunningAt == nil && b.row.GoAt == nil))
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
func (wd *Watchdog) tend(ctx context.Context, tx *db.Tx, cl id.Cluster) error {
	x, err := wd.machine.lock(ctx, tx, cl)
	if err != nil {
		return err
	}
	w := wd.machine.writer(tx, x)
	if x.row.SettledAt == nil && x.row.RunningAt != nil {
		cases, err := readPending(ctx, tx.Q, x)
		if err != nil {
			return fmt.Errorf("pending time of cluster %s: %w", cl, err)
		}
		if x.billing.judge(cases); len(x.out.writes) > 0 { // what follows depends on it
			if err := w.save(ctx); err != nil {
				return err
			}
		}
	}
	if !lifecycle.State(x.row.State).Ended() {
		return w.tendLive(ctx)
	}
	if x.row.SettledAt != nil || !x.billing.reportsComplete() {
		return nil
	}
	x.out.addWrite(settle)
	return w.save(ctx)
}

// tendLive is tend for a cluster that has not ended.
func (w *writer) tendLive(ctx context.Context) error {
	x := w.x
	if x.billing.window { // nothing is confirmed while a rank is in doubt
		span, split := x.billing.unconfirmed()
		if !split {
			x.billing.confirm(span)
		} else {
			facts, err := readCase(ctx, w.tx.Q, x, span)
			if err != nil {
				return err
			}
			x.billing.confirmOrSplit(facts)
		}
	}
	if x.row.RunningAt != nil { // also while it is suspended: earlier time may still be unposted
		cl := x.row.ID
		x.out.addWrite(func(ctx context.Context, w *writer) error { return metering.Post(ctx, w.tx, cl) })
	}
	if !x.billing.lapsed() && x.members.living() { // while every rank waits for another host nothing is paid ahead
		x.out.addWrite(authorise)
	}
	if err := w.run(ctx); err != nil {
		return err
	}
	if s := lifecycle.State(x.row.State); (s == lifecycle.Running || s == lifecycle.Degraded) && x.members.living() {
		next, err := x.billing.readStop(ctx, w.tx.Q)
		if err != nil {
			return err
		}
		x.billing.warn(next)
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

// warn notifies the renter, once per threshold and dip, when money or the longest duration stops the cluster. A day
// ahead only empty wallets are worth a notice: budgets and durations of less than a day are what the renter asked for.
func (b *billing) warn(s stop) {
	left := farthest
	if !s.at.IsZero() && (s.cause == client.StopFunds || s.at.Sub(b.now) <= time.Hour) {
		left = max(0, s.at.Sub(b.now))
	}
	d, tell := dip{time.Duration(b.row.RunwayToldS) * time.Second, int(b.row.RunwayDips)}.sink(left)
	b.row.RunwayToldS, b.row.RunwayDips = int32(d.reported/time.Second), int32(d.rises)
	if !tell {
		return
	}
	for _, w := range warnings {
		if w.left != d.reported {
			continue
		}
		b.out.notices = append(b.out.notices, notify.Notice{
			Org:      b.row.OrgID,
			Key:      fmt.Sprintf("runway:%s:%s:%d", w.name, b.row.ID, d.rises),
			Severity: w.severity,
			Title:    fmt.Sprintf("%s has less than %s left", b.row.Name, w.name),
			Body: fmt.Sprintf("It stops at about %s UTC because %s. Save what you need before.",
				s.at.Format("15:04 on 2 January"), s.cause.Why()),
			Object:   b.row.ID.String(),
			Forecast: true,
		})
	}
}

// readStop reads when money or the longest duration stops the cluster.
func (b *billing) readStop(ctx context.Context, q *dbq.Queries) (stop, error) {
	m, err := readMeans(ctx, q, b.row.OrgID, b.row.Currency)
	if err != nil {
		return stop{}, err
	}
	s := standing{row: *b.row, means: m}
	if b.row.Budget != nil {
		costs, err := metering.Costs(ctx, q, []id.Cluster{b.row.ID})
		if err != nil {
			return stop{}, fmt.Errorf("cost of %s: %w", b.row.ID, err)
		}
		s.cost = costs[b.row.ID].Estimate
	}
	return s.moneyEnds(), nil
}

// withdraw deletes the notices of what may happen to the cluster: it has ended. When money has ended it, the renter is
// notified of that instead.
func (b *billing) withdraw(r lifecycle.Reason) {
	org, object := b.row.OrgID, b.row.ID.String()
	b.out.addWrite(func(ctx context.Context, w *writer) error { return notify.Withdraw(ctx, w.tx, org, object) })
	if r != lifecycle.ReasonFundsExhausted && r != lifecycle.ReasonBudgetExhausted {
		return
	}
	b.out.notices = append(b.out.notices, notify.Notice{
		Org:      org,
		Key:      "stopped:" + object,
		Severity: notify.Warn,
		Title:    b.row.Name + " has stopped",
		Body:     b.row.Detail,
		Object:   object,
	})
}
