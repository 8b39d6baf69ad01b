package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/ledger"
	"github.com/musterhq/muster/internal/metering"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
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
	x.row.RunUntil = &a.RunUntil
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
	metering.LimitNone: ReasonNone, metering.LimitFunds: ReasonFundsExhausted, metering.LimitBudget: ReasonBudgetExhausted, metering.LimitOrg: ReasonBudgetExhausted,
	metering.LimitDuration: ReasonMaxDuration,
}

// lapsed reports whether the paid time has passed: hosts have stopped there by themselves, more money comes too late.
func (x *change) lapsed() bool {
	return x.row.GoAt != nil && x.row.RunUntil != nil && !x.now.Before(*x.row.RunUntil)
}

// heardOut reports whether the hosts of an ended cluster have nothing more to say that could be billed: settling
// before would refuse their last segments.
func (x *change) heardOut() bool {
	started := slices.ContainsFunc(x.nodes, func(n *node) bool { return n.StartedAt != nil })
	return !x.window && (x.allGone() || (x.row.RunningAt == nil && !started))
}

// settle posts what can be posted and gives back what can no longer be needed.
func (x *change) settle(ctx context.Context) error {
	if x.row.SettledAt != nil {
		return nil
	}
	done, err := metering.Settle(ctx, x.tx, x.row.ID)
	if err == nil && done {
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
	switch s := State(x.row.State); {
	case s.Ended():
		if x.row.SettledAt != nil || !x.heardOut() {
			return nil
		}
		if err := x.settle(ctx); err != nil {
			return fmt.Errorf("settle cluster %s: %w", cl, err)
		}
	default:
		if x.window {
			if err := metering.AdvanceConfirmed(ctx, tx, cl, x.confirmed()); err != nil {
				return fmt.Errorf("confirm cluster %s: %w", cl, err)
			}
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

// warnings are the thresholds of runway at which a renter is told, nearest first.
var warnings = []struct {
	left     time.Duration
	name     string
	severity notify.Severity
}{
	{10 * time.Minute, "10 minutes", notify.Bad},
	{time.Hour, "1 hour", notify.Warn},
	{24 * time.Hour, "24 hours", notify.Info},
}

// warn tells the renter once a day and threshold how long the money lasts.
func (x *change) warn(ctx context.Context) error {
	left, what, err := x.runway(ctx)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		if left > w.left {
			continue
		}
		_, err := notify.Add(ctx, x.tx, notify.Notice{
			Org: x.row.OrgID, Key: fmt.Sprintf("runway:%s:%s:%s", w.name, x.row.ID, x.now.Format(time.DateOnly)), Severity: w.severity,
			Title:  fmt.Sprintf("%s has less than %s left", x.row.Name, w.name),
			Body:   fmt.Sprintf("%s lasts until about %s UTC. Then the cluster is stopped in order.", what, x.now.Add(left).Format("15:04 on 2 January")),
			Object: x.row.ID.String(),
		})
		return err
	}
	return nil
}

// runway is how long the cluster can run on, and what limits it.
func (x *change) runway(ctx context.Context) (time.Duration, string, error) {
	left := max(0, deref(x.row.RunUntil).Sub(x.now))
	switch Reason(x.row.MoneyReason) {
	case ReasonBudgetExhausted:
		return left, "The budget", nil
	case ReasonMaxDuration:
		return left, "The longest duration you set", nil
	case ReasonFundsExhausted:
		return left, "Your credit", nil
	}
	burn, err := x.tx.Q.OrgBurn(ctx, x.row.OrgID)
	if err != nil {
		return 0, "", fmt.Errorf("burn of %s: %w", x.row.OrgID, err)
	}
	wallet, err := ledger.Balance(ctx, x.tx.Q, ledger.Wallet(x.row.OrgID, x.row.Currency))
	if err != nil {
		return 0, "", err
	}
	const month = 30 * 24 * time.Hour
	if burn <= 0 {
		return month, "Your credit", nil
	}
	ms := min(money.MillisOf(wallet, money.Micro(burn)), month.Milliseconds())
	return left + time.Duration(ms)*time.Millisecond, "Your credit", nil
}
