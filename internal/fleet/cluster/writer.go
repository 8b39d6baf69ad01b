package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// writer stores a locked cluster and its effects.
type writer struct {
	m  *machine
	tx *db.Tx
	x  *lockedCluster
}

func (m *machine) writer(tx *db.Tx, x *lockedCluster) *writer { return &writer{m, tx, x} }

// commit writes everything in the order of locks: hosts, claims, meters and money, the cluster's own rows. The caller
// commits the transaction.
func (w *writer) commit(ctx context.Context) error {
	x := w.x
	x.billing.closeWindow()
	if lifecycle.State(x.row.State).Ended() && x.billing.reportsComplete() {
		x.out.addWrite(settle)
	}
	hosts := maps.Clone(x.out.raise)
	for _, n := range x.out.freed {
		hosts[n.HostID] = true
	}
	if len(hosts) > 0 {
		if err := w.raiseHosts(ctx, slices.SortedFunc(maps.Keys(hosts), id.Host.Compare)); err != nil {
			return fmt.Errorf("lock hosts of cluster %s and raise their revisions: %w", x.row.ID, err)
		}
	}
	for _, n := range x.out.freed {
		if err := host.EndClaims(ctx, w.tx, n.LeaseID.UUID(), host.EndReleased); err != nil {
			return fmt.Errorf("end the claims of %s: %w", n.LeaseID, err)
		}
	}
	return w.save(ctx)
}

// raiseHosts locks the hosts and raises the revisions of those whose desired state changes.
func (w *writer) raiseHosts(ctx context.Context, hosts []id.Host) error {
	b := &pgx.Batch{}
	host.QueueLock(b, hosts)
	if len(w.x.out.raise) > 0 {
		host.QueueRevision(b, w.tx, w.m.bus, slices.SortedFunc(maps.Keys(w.x.out.raise), id.Host.Compare))
	}
	return w.tx.Send(ctx, b)
}

// run makes the writes of meters and money that were added so far.
func (w *writer) run(ctx context.Context) error {
	for len(w.x.out.writes) > 0 {
		next := w.x.out.writes[0]
		w.x.out.writes = w.x.out.writes[1:]
		if err := next(ctx, w); err != nil {
			return fmt.Errorf("meters and money of cluster %s: %w", w.x.row.ID, err)
		}
	}
	return nil
}

// save makes all writes but those of hosts and claims: meters and money, notices, and the cluster's own rows.
func (w *writer) save(ctx context.Context) error {
	x := w.x
	if err := w.run(ctx); err != nil {
		return err
	}
	for _, n := range x.out.notices {
		if _, err := notify.Add(ctx, w.tx, n); err != nil {
			return fmt.Errorf("notice about cluster %s: %w", x.row.ID, err)
		}
	}
	b := &pgx.Batch{}
	x.queueFacts(b)
	x.queueRows(b)
	if err := w.tx.Send(ctx, b); err != nil {
		return fmt.Errorf("save cluster %s: %w", x.row.ID, err)
	}
	if len(x.out.events) > 0 {
		w.tx.AfterCommit(func() { w.m.bus.Changed(bus.TopicCluster(x.row.ID), bus.TopicOrg(x.row.OrgID)) })
	}
	*x.out = effects{raise: map[id.Host]bool{}}
	return nil
}

// queueRows queues the writes of the cluster, its nodes and its timeline.
func (x *lockedCluster) queueRows(b *pgx.Batch) {
	for _, n := range x.members.nodes {
		if !n.dirty {
			continue
		}
		if n.moved {
			x.queueMove(b, n)
		}
		db.Write(b, (*dbq.Queries).SaveNode, dbq.SaveNodeParams{
			ID: n.ID, Epoch: n.Epoch, State: n.State, Reason: n.Reason, Detail: n.Detail, WgKey: n.WgKey, Endpoints: n.Endpoints,
			StartedAt: n.StartedAt, ExitCode: n.ExitCode, ExitAt: n.ExitAt, Preflight: n.Preflight, Since: n.Since,
			ReclaimTold: n.ReclaimTold, OwnerUseTold: n.OwnerUseTold, CapTold: n.CapTold,
			LeavingTold:     n.LeavingTold,
			UploadsLostTold: n.UploadsLostTold,
		})
	}
	for _, e := range x.out.events {
		db.Write(b, (*dbq.Queries).InsertClusterEvent, e)
	}
	x.row.DueAt = x.due()
	r := x.row
	db.Write(b, (*dbq.Queries).SaveCluster, dbq.SaveClusterParams{
		ID:            r.ID,
		State:         r.State,
		Reason:        r.Reason,
		Detail:        r.Detail,
		ImageDigest:   r.ImageDigest,
		Secrets:       r.Secrets,
		Epoch:         r.Epoch,
		GoAt:          r.GoAt,
		StartDeadline: r.StartDeadline,
		StartFrom:     r.StartFrom,
		QuickFailures: r.QuickFailures,
		MoneyReason:   r.MoneyReason,
		StopAt:        r.StopAt,
		Network:       r.Network,
		RunningAt:     r.RunningAt,
		EndedAt:       r.EndedAt,
		RunUntil:      r.RunUntil,
		DueAt:         r.DueAt,
		SettledAt:     r.SettledAt,
		Rate:          r.Rate,
		ReplaceUntil:  r.ReplaceUntil,
		ReplaceNote:   r.ReplaceNote,
		RunwayToldS:   r.RunwayToldS,
		RunwayDips:    r.RunwayDips,
		Looked:        x.looked,
	})
}

// queueMove queues the writes of a replaced rank's new host and lease.
func (x *lockedCluster) queueMove(b *pgx.Batch, n *node) {
	db.Write(b, (*dbq.Queries).InsertLostGap, n.ID)
	db.Write(b, (*dbq.Queries).InsertReplacement, dbq.InsertReplacementParams{
		ClusterID: x.row.ID,
		LeaseID:   n.LeaseID,
		HostID:    n.HostID,
		At:        x.now,
		NodeID:    n.ID,
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error { return q.MoveNode(ctx, n.LeaseID, n.HostID, n.ID) })
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		return q.ForgetNodeStatus(ctx, n.Epoch, x.now, n.ID)
	})
}

// queueFacts queues the writes of strikes, suspensions, late reports and bans.
func (x *lockedCluster) queueFacts(b *pgx.Batch) {
	x.queueStartsEnded(b)
	for _, s := range x.out.strikes {
		db.Write(b, (*dbq.Queries).InsertStrike, s)
	}
	for _, u := range x.out.undecided {
		if u.endMS == 0 {
			db.Write(b, (*dbq.Queries).StartUndecided, dbq.StartUndecidedParams{
				ClusterID: x.row.ID,
				Epoch:     u.Epoch,
				Low:       u.Low,
				High:      u.High,
				FromMs:    u.FromMs,
			})
			continue
		}
		db.Write(b, (*dbq.Queries).EndUndecided, dbq.EndUndecidedParams{
			ClusterID: x.row.ID,
			Epoch:     u.Epoch,
			Low:       u.Low,
			High:      u.High,
			ToMs:      u.endMS,
		})
	}
	for _, pair := range x.out.bans {
		db.Queue(b, func(ctx context.Context, q *dbq.Queries) error { return q.BanPair(ctx, pair.A, pair.B, pair.Until) })
	}
	for _, s := range x.out.suspended {
		db.Write(b, (*dbq.Queries).InsertSuspension, s)
	}
	if len(x.out.silences.Hosts) > 0 {
		db.Write(b, (*dbq.Queries).InsertSilences, x.out.silences)
	}
}

// effects is what decisions about a locked cluster change beyond its own rows. A writer stores it.
type effects struct {
	raise  map[id.Host]bool // hosts whose desired state changes: they are woken
	freed  []*node          // nodes whose GPUs are free: their claims end
	writes []write          // of meters, bonds and money, in order

	startsEnded []endedStart

	events    []dbq.InsertClusterEventParams
	notices   []notify.Notice
	strikes   []dbq.InsertStrikeParams
	undecided []undecided // suspensions
	suspended []dbq.InsertSuspensionParams
	silences  dbq.InsertSilencesParams
	bans      []ban
}

// write is a change outside the cluster's own rows, made in the writer's transaction.
type write func(ctx context.Context, w *writer) error

func (e *effects) addWrite(f write) { e.writes = append(e.writes, f) }
