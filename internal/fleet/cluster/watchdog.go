package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// Result is what one pass of the watchdog did.
type Result struct {
	Calm   int // running clusters in whose rows nothing asked for attention
	Looked int // other clusters, looked at one by one
	Failed int // of them, those that could not be tended; they come again
}

// maxPass bounds one pass, so that a replica that stops need not finish a long one.
const maxPass = 500

// Watchdog tends clusters whose time has come.
type Watchdog struct {
	db      *db.DB
	market  *market.Market
	cfg     *Config
	log     *slog.Logger
	machine *machine

	calmFailed atomic.Bool // in the last pass
}

// Pass looks at every cluster whose time has come: it confirms and posts proven time, extends the authorisation,
// warns of a short runway, finds lost nodes and other hosts for them, passed deadlines and the ends of money and
// duration, gives up hosts that never answer, and settles what has ended. Any number of replicas may run it at once:
// each due cluster is taken by one.
func (wd *Watchdog) Pass(ctx context.Context) (r Result, err error) {
	// Should this fail again and again, every other pass looks at each cluster by itself.
	calmly := !wd.calmFailed.Swap(false)
	for r.Looked < maxPass && ctx.Err() == nil {
		// Before each batch, because looks take time: a calm cluster that became due meanwhile needs none.
		if calmly {
			calm, err := wd.keepCalm(ctx)
			r.Calm += calm
			if err != nil {
				wd.calmFailed.Store(true)
				return r, err
			}
		}
		due, err := wd.takeDue(ctx)
		if err != nil || len(due) == 0 {
			return r, err
		}
		r.Looked += len(due)
		failed, err := wd.lookAt(ctx, due)
		r.Failed += failed
		if err != nil {
			return r, err
		}
	}
	return r, ctx.Err()
}

const (
	// lookBatch is how many due clusters a replica takes at once, and lookers how many it looks at at the same time.
	lookBatch = 32
	lookers   = 4
	// lookAgain is when a cluster that was taken is due again, if its replica stops before it has looked at it.
	lookAgain = 15 * time.Second
)

// takeDue takes the clusters that have been due for the longest. No other replica finds them within lookAgain.
func (wd *Watchdog) takeDue(ctx context.Context) ([]id.Cluster, error) {
	due, err := wd.db.Q.TakeDueClusters(ctx, lookAgain.Seconds(), lookBatch)
	if err != nil {
		return nil, fmt.Errorf("take due clusters: %w", err)
	}
	return due, nil
}

// lookAt looks at clusters, several at the same time, and returns how many could not be tended. One cluster in trouble
// does not keep the others from being looked at.
func (wd *Watchdog) lookAt(ctx context.Context, due []id.Cluster) (failed int, err error) {
	var group errgroup.Group
	group.SetLimit(lookers)
	var count atomic.Int64
	for _, cl := range due {
		group.Go(func() error {
			err := wd.look(ctx, cl)
			switch {
			case err == nil:
				return nil
			case ctx.Err() != nil:
				return ctx.Err()
			}
			count.Add(1)
			wd.log.Error("the watchdog could not tend a cluster", "cluster", cl, "err", err)
			return wd.postpone(ctx, cl, err)
		})
	}
	err = group.Wait()
	return int(count.Load()), err
}

const (
	// failedLook is when a cluster that could not be tended is looked at again.
	failedLook = 10 * time.Second
	// queueWatchdog names clusters that cannot be tended among the dead letters.
	queueWatchdog = "cluster_watchdog"
)

// postpone has a cluster that could not be tended looked at again after the others.
func (wd *Watchdog) postpone(ctx context.Context, cl id.Cluster, why error) error {
	if err := wd.db.Q.PostponeCluster(ctx, failedLook.Seconds(), cl); err != nil {
		return fmt.Errorf("postpone cluster %s: %w", cl, err)
	}
	_, err := notify.DeadLetter(ctx, wd.db, queueWatchdog, cl.String(), why)
	return err
}

// look tends one cluster: what it is entitled to decide about money first, because an extension may save it; then
// time; then the bonds of a gang. They are transactions of their own, since money comes after hosts, and wallets after
// bonds, in the order of locks.
func (wd *Watchdog) look(ctx context.Context, cl id.Cluster) error {
	if err := wd.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return wd.tend(ctx, tx, cl) }); err != nil {
		return err
	}
	var seen *lockedCluster
	err := wd.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return wd.machine.alter(ctx, tx, cl, func(x *lockedCluster) error {
			seen, x.looked = x, true
			waiting := x.reports.awaitingEnd()
			held, err := readHeld(ctx, tx.Q, waiting, wd.cfg.AbandonAfter)
			if err == nil {
				x.reports.partUnheld(waiting, held)
			}
			return err
		})
	})
	if err == nil && len(seen.placement.waiting()) > 0 {
		err = wd.replace(ctx, cl)
	}
	if err == nil && len(seen.members.nodes) > 1 {
		err = wd.tendBonds(ctx, cl)
	}
	return err
}

// readHeld reads for which of the ended leases something may be left on their hosts: those whose claims have not ended,
// and those whose hosts upload and were not out of reach for too long.
func readHeld(ctx context.Context, q *dbq.Queries, leases []id.Lease, after time.Duration) ([]pgtype.UUID, error) {
	if len(leases) == 0 {
		return nil, nil
	}
	held, err := q.HeldLeases(ctx, id.UUIDs(leases...), after.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("what is left of leases: %w", err)
	}
	return held, nil
}

// maxCalm is how many clusters are kept calm in one transaction, and locked for as long.
const maxCalm = 250

// keepCalm passes over due clusters in whose rows nothing asks for attention, many in each transaction: it only moves
// the time at which they are due again, and through when the time of single nodes is confirmed. In between, within six
// minutes each, such clusters are looked at one by one all the same. Whatever this cannot see (proof that completes,
// bonds, a gang's confirmed time) waits for that look; whatever it can see ends the calm at once. It returns how many
// clusters were calm.
func (wd *Watchdog) keepCalm(ctx context.Context) (n int, err error) {
	for ctx.Err() == nil {
		seen, calm := 0, 0
		err := wd.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			seen, calm, err = wd.calmBatch(ctx, tx)
			return err
		})
		if err != nil {
			return n, fmt.Errorf("keep calm clusters: %w", err)
		}
		if n += calm; seen < maxCalm {
			break
		}
	}
	return n, ctx.Err()
}

// calmBatch is keepCalm for some due clusters. It returns how many it has seen and how many of them are calm; the
// others it leaves to a look of their own.
func (wd *Watchdog) calmBatch(ctx context.Context, tx *db.Tx) (seen, calm int, err error) {
	step, look := metering.UntouchedPaid.Seconds(), lookRunning.Seconds()
	ids, err := tx.Q.LockQuietClusters(ctx, step, look, maxCalm)
	if err != nil || len(ids) == 0 {
		return 0, 0, err
	}
	// A statement of its own, so that it sees what is there under the locks.
	rows, err := tx.Q.KeepCalm(ctx, dbq.KeepCalmParams{
		Ids:    id.UUIDs(ids...),
		LostS:  wd.cfg.LostAfter.Seconds(),
		StepS:  step,
		LookS:  look,
		PostMs: metering.UntouchedPosted.Milliseconds(),
	})
	if err != nil {
		return 0, 0, err
	}
	var single []pgtype.UUID
	var good []int64
	restless := make(map[id.Cluster]bool, len(ids))
	for _, cl := range ids {
		restless[cl] = true
	}
	for _, r := range rows {
		delete(restless, r.ID)
		if r.NodeCount == 1 {
			single, good = append(single, id.UUIDs(r.ID)...), append(good, r.GoodMs)
		}
	}
	if len(restless) > 0 { // they are not calm again before they have been looked at
		if err := tx.Q.EndCalm(ctx, id.UUIDs(slices.Collect(maps.Keys(restless))...)); err != nil {
			return 0, 0, err
		}
	}
	return len(ids), len(rows), metering.AdvanceAllConfirmed(ctx, tx, single, good)
}
