package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
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

// notAfter is the end that max_duration sets; before the cluster runs, as if it ran from now.
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

// limitReasons is what a cluster ends with when a limit keeps it from being extended.
var limitReasons = map[metering.Limit]Reason{
	metering.LimitNone:     ReasonNone,
	metering.LimitFunds:    ReasonFundsExhausted,
	metering.LimitBudget:   ReasonBudgetExhausted,
	metering.LimitOrg:      ReasonBudgetExhausted,
	metering.LimitDuration: ReasonMaxDuration,
}

// lapsed reports whether the paid time has passed: hosts have stopped there by themselves, more money comes too late.
func (x *lockedCluster) lapsed() bool {
	return x.row.GoAt != nil && x.row.RunUntil != nil && !x.now.Before(*x.row.RunUntil)
}

// reportsComplete reports whether the hosts of an ended cluster have nothing more to say that could be billed: settling
// before would refuse their last segments. Once the barrier was opened a rank may have started unheard.
func (x *lockedCluster) reportsComplete() bool {
	return !x.window && (x.allGone() || (x.row.RunningAt == nil && x.row.GoAt == nil))
}

// settle posts what can be posted and gives back what can no longer be needed.
func settle(ctx context.Context, w *writer) error {
	x := w.x
	if x.row.SettledAt != nil {
		return nil
	}
	done, err := metering.Settle(ctx, w.tx, x.row.ID)
	if err != nil || !done {
		return err
	}
	reserved, err := hasReserved(ctx, w.tx.Q, x) // released in a transaction of its own: see bonds
	if err == nil && !reserved {
		x.row.SettledAt = &x.now
	}
	return err
}

// tend is the money side of a look at a cluster, in a transaction that takes no host: pending time is judged, the proven
// time is confirmed and posted, the paid time extended, the renter warned, an ended cluster settled.
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
	if !State(x.row.State).Ended() {
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
	if x.row.RunningAt != nil { // also while it is suspended: what waits is booked then
		cl := x.row.ID
		x.addWrite(func(ctx context.Context, w *writer) error { return metering.Post(ctx, w.tx, cl) })
	}
	if !x.lapsed() && x.living() { // while every rank waits for another host nothing is paid ahead
		x.addWrite(authorise)
	}
	if err := w.run(ctx); err != nil {
		return err
	}
	if s := State(x.row.State); (s == Running || s == Degraded) && x.living() {
		m, err := readMeans(ctx, w.tx.Q, x)
		if err != nil {
			return err
		}
		x.warn(m)
	}
	return w.save(ctx)
}
