package cluster

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// Act performs one of the cluster's actions. Releasing a cluster that has ended is no error. Faults: NotFound, Conflict
// if the action is not possible now, Invalid if there is no such action.
func (rs *Rentals) Act(ctx context.Context, p account.Principal, cl id.Cluster, a Action) (Cluster, error) {
	out, _, err := rs.ActOnce(ctx, p, cl, a, idem.Request{})
	return out, err
}

// ActOnce is Act with an idempotency key: a repeated call returns the first answer.
func (rs *Rentals) ActOnce(ctx context.Context, p account.Principal, cl id.Cluster, a Action,
	key idem.Request) (Cluster, idem.Outcome, error) {
	switch a {
	case ActionRelease:
		return rs.release(ctx, p, cl, key)
	case ActionRestart:
		return rs.restart(ctx, p, cl, key)
	}
	return Cluster{}, idem.Outcome{}, fault.InvalidField("action", "want one of %v",
		[]Action{ActionRelease, ActionRestart})
}

// Release ends the cluster now. Its processes have lifecycle.StopGrace to end, and each lease is billed for that time
// as its host signs it, but for nothing later. Releasing a cluster that has ended changes nothing.
func (rs *Rentals) Release(ctx context.Context, p account.Principal, cl id.Cluster) (Cluster, error) {
	out, _, err := rs.release(ctx, p, cl, idem.Request{})
	return out, err
}

func (rs *Rentals) release(ctx context.Context, p account.Principal, cl id.Cluster,
	key idem.Request) (Cluster, idem.Outcome, error) {
	return rs.act(ctx, p, cl, key, "cluster.release", releaseByUser)
}

// EndTakenOver releases all clusters of an organisation that another person may have set up with its owner's e-mail
// address. Without it they would use up what the owner pays in.
func (rs *Rentals) EndTakenOver(ctx context.Context, tx *db.Tx, org id.Org) error {
	clusters, err := tx.Q.UnendedClusters(ctx, org)
	if err != nil {
		return fmt.Errorf("read clusters of %s: %w", org, err)
	}
	for _, cl := range clusters {
		if err := rs.machine.alter(ctx, tx, cl, releaseByUser); err != nil {
			return err
		}
		if err := audit.Record(ctx, tx, audit.Event{Org: org, Action: "cluster.release", Object: cl.String()}); err != nil {
			return err
		}
	}
	return nil
}

// releaseByUser ends a cluster at its renter's wish.
func releaseByUser(x *lockedCluster) error {
	if t, ok := lifecycle.On(lifecycle.State(x.row.State), lifecycle.OnRelease); ok {
		x.life.transition(lifecycle.Decision{Transition: t, Reason: lifecycle.ReasonReleasedByUser})
	}
	return nil
}

// Restart stops the command on every rank and starts it again on the same hosts; billing is suspended in between.
func (rs *Rentals) Restart(ctx context.Context, p account.Principal, cl id.Cluster) (Cluster, error) {
	out, _, err := rs.restart(ctx, p, cl, idem.Request{})
	return out, err
}

func (rs *Rentals) restart(ctx context.Context, p account.Principal, cl id.Cluster,
	key idem.Request) (Cluster, idem.Outcome, error) {
	return rs.act(ctx, p, cl, key, "cluster.restart", func(x *lockedCluster) error {
		if !slices.Contains(actions(*x.row), ActionRestart) {
			return fault.New(fault.Conflict, "A cluster can be restarted while it is running; this one is %s.", x.row.State)
		}
		t, _ := lifecycle.On(lifecycle.State(x.row.State), lifecycle.OnRestart)
		x.life.transition(lifecycle.Decision{Transition: t})
		x.row.QuickFailures = 0
		return nil
	})
}

// act calls f with the cluster locked. The answer is read after the commit, so that no view is read under the locks.
// Until it is stored under the key, a repeated request gets the cluster in its present state.
func (rs *Rentals) act(ctx context.Context, p account.Principal, cl id.Cluster, key idem.Request, action string,
	f func(*lockedCluster) error) (Cluster, idem.Outcome, error) {
	if _, err := rs.views.owned(ctx, p.Org, cl); err != nil {
		return Cluster{}, idem.Outcome{}, err
	}
	key = key.ByReference()
	stored, done, err := idem.Once(ctx, rs.db, key, func(ctx context.Context, tx *db.Tx) (*Cluster, error) {
		if err := rs.machine.alter(ctx, tx, cl, f); err != nil {
			return nil, err
		}
		return nil, audit.Record(ctx, tx, p.Event(action, cl.String(), nil))
	})
	if err != nil {
		return Cluster{}, idem.Outcome{}, err
	}
	if stored != nil {
		return *stored, done.Again(), nil
	}
	out, err := view(ctx, rs.db.Q, cl)
	if err == nil {
		// The action is done: without this, a repeated request reads the cluster.
		_ = key.Amend(ctx, rs.db.Q, http.StatusOK, out)
	}
	return out, done.Again(), err
}
