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
func (x *change) authorise(ctx context.Context) error {
	a, err := metering.Authorise(ctx, x.tx, metering.AuthoriseRequest{
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
func (x *change) lapsed() bool {
	return x.row.GoAt != nil && x.row.RunUntil != nil && !x.now.Before(*x.row.RunUntil)
}

// reportsComplete reports whether the hosts of an ended cluster have nothing more to say that could be billed: settling
// before would refuse their last segments. Once the barrier was opened a rank may have started unheard.
func (x *change) reportsComplete() bool {
	return !x.window && (x.allGone() || (x.row.RunningAt == nil && x.row.GoAt == nil))
}

// settle posts what can be posted and gives back what can no longer be needed.
func (x *change) settle(ctx context.Context) error {
	if x.row.SettledAt != nil {
		return nil
	}
	done, err := metering.Settle(ctx, x.tx, x.row.ID)
	if err != nil || !done {
		return err
	}
	reserved, err := x.reserved(ctx) // released in a transaction of its own: see bonds
	if err == nil && !reserved {
		x.row.SettledAt = &x.now
	}
	return err
}

// tend is the money side of a look at a cluster, in a transaction that takes no host: the proven time is confirmed and
// posted, the paid time extended, the renter warned, an ended cluster settled.
func (c *Clusters) tend(ctx context.Context, tx *db.Tx, cl id.Cluster) error {
	x, err := c.lock(ctx, tx, cl)
	if err != nil {
		return err
	}
	if x.row.SettledAt == nil && x.row.RunningAt != nil {
		if _, err := x.judge(ctx); err != nil {
			return fmt.Errorf("judge cluster %s: %w", cl, err)
		}
	}
	switch s := State(x.row.State); {
	case s.Ended():
		if x.row.SettledAt != nil || !x.reportsComplete() {
			return nil
		}
		if err := x.settle(ctx); err != nil {
			return fmt.Errorf("settle cluster %s: %w", cl, err)
		}
	default:
		if x.window {
			// Nothing is done while a rank is in doubt.
			if err := x.confirm(ctx); err != nil {
				return fmt.Errorf("confirm cluster %s: %w", cl, err)
			}
		}
		if x.row.RunningAt != nil { // also while it is suspended: what waits is booked then
			if err := metering.Post(ctx, tx, cl); err != nil {
				return fmt.Errorf("post cluster %s: %w", cl, err)
			}
		}
		if !x.lapsed() && x.living() { // while every rank waits for another host nothing is paid ahead
			if err := x.authorise(ctx); err != nil {
				return fmt.Errorf("extend cluster %s: %w", cl, err)
			}
		}
		if (s == Running || s == Degraded) && x.living() {
			if err := x.warn(ctx); err != nil {
				return err
			}
		}
	}
	return x.save(ctx)
}
