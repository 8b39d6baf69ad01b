package cluster

import (
	"context"
	"slices"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// Act does one of the cluster's actions. Releasing a cluster that has ended is no error. Faults: NotFound, Conflict
// for an action that is not possible now, Invalid for one that does not exist.
func (c *Clusters) Act(ctx context.Context, p account.Principal, cl id.Cluster, a Action) (Cluster, error) {
	switch a {
	case ActionRelease:
		return c.Release(ctx, p, cl)
	case ActionRestart:
		return c.Restart(ctx, p, cl)
	}
	return Cluster{}, fault.InvalidField("action", "want one of %v", []Action{ActionRelease, ActionRestart})
}

// Release ends the cluster now: nothing after this moment is billed. Releasing one that has ended changes nothing.
func (c *Clusters) Release(ctx context.Context, p account.Principal, cl id.Cluster) (Cluster, error) {
	return c.ask(ctx, p, cl, "cluster.release", func(x *change) error {
		t, ok := on(State(x.row.State), OnRelease)
		if ok {
			x.apply(Decision{Transition: t, Reason: ReasonReleasedByUser})
		}
		return nil
	})
}

// Restart stops the command on every rank and starts it again on the same hosts; billing is suspended in between.
func (c *Clusters) Restart(ctx context.Context, p account.Principal, cl id.Cluster) (Cluster, error) {
	return c.ask(ctx, p, cl, "cluster.restart", func(x *change) error {
		if !slices.Contains(actions(x.row), ActionRestart) {
			return fault.New(fault.Conflict, "A cluster can be restarted while it is running; this one is %s.", x.row.State)
		}
		t, _ := on(State(x.row.State), OnRestart)
		x.apply(Decision{Transition: t})
		x.row.QuickFailures = 0
		return nil
	})
}

func (c *Clusters) ask(ctx context.Context, p account.Principal, cl id.Cluster, action string, f func(*change) error) (Cluster, error) {
	if _, err := c.owned(ctx, p.Org, cl); err != nil {
		return Cluster{}, err
	}
	var out Cluster
	err := c.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := c.alter(ctx, tx, cl, func(_ context.Context, x *change) error { return f(x) }); err != nil {
			return err
		}
		if err := audit.Record(ctx, tx, p.Event(action, cl.String(), nil)); err != nil {
			return err
		}
		var err error
		out, err = view(ctx, tx.Q, cl)
		return err
	})
	return out, err
}
