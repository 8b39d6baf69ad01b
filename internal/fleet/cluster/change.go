package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
)

// change is one cluster under its lock, being changed. What is decided is kept here first and written by commit in
// the order of locks: hosts, then claims, then meters and books, then the cluster's own rows.
type change struct {
	c    *Clusters
	tx   *db.Tx
	now  time.Time // PostgreSQL's, read under the lock
	row  dbq.Cluster
	spec market.Spec

	nodes  []*node
	window bool // a billing window is open
	// confirmedMS is through when the open window is confirmed, unix ms. deafAfter says that a host has signed that it was
	// deaf to another rank after that.
	confirmedMS int64
	deafAfter   bool
	// doubtFrom is since when a rank is in doubt while the window is open; zero: none is.
	doubtFrom time.Time
	hearing   host.Reception               // when we could not hear hosts
	gaps      []dbq.UnjudgedGapsRow        // time without attestation that nothing was decided about
	disputed  []dbq.OpenUndecidedRow       // undecided suspensions that go on
	undecided []undecided                  // those to be written
	strikes   []dbq.InsertStrikeParams     // to be written
	suspended []dbq.InsertSuspensionParams // to be written
	bans      []ban                        // to be written
	// reach is how far money, budgets and duration go, at most an hour; nil: it was not asked in this change.
	reach *time.Time
	// lost are leases of lost hosts whose ranks went on elsewhere, of which something may still be left there.
	lost []dbq.LostLeasesRow

	raise  map[id.Host]bool // hosts whose desired state changes
	freed  []*node          // nodes of which nothing is left: their claims end
	locked []func(context.Context) error
	events []dbq.InsertClusterEventParams

	looked bool // by the watchdog, at everything
}

// node is one rank in a change.
type node struct {
	dbq.Node
	status    dbq.NodeStatus
	gpus      []id.GPU
	required  bool
	ended     *time.Time // lease: no longer desired
	gone      *time.Time // lease: nothing left on the host
	back      reclaim    // of its host by the operator
	operator  id.Org     // of its host
	hostName  string
	listener  string     // the NATS server that its host is connected to
	connected time.Time  // since when it is
	doubts    []int64    // when its host was in doubt within the last two hours, in any gang (unix ms)
	bondLow   bool       // so little of its bond is left that its failure is final
	protocol  int32      // of its host's agent
	capped    *time.Time // its host's data cap is used up until then
	dirty     bool
	moved     bool // LeaseID and HostID are new
}

// alter locks a cluster, lets f put in what happened, applies what follows from it, and writes the result in tx.
func (c *Clusters) alter(ctx context.Context, tx *db.Tx, cl id.Cluster, f func(context.Context, *change) error) error {
	x, err := c.lock(ctx, tx, cl)
	if err != nil {
		return err
	}
	if err := f(ctx, x); err != nil {
		return err
	}
	x.assess()
	if err := x.readBonds(ctx); err != nil {
		return err
	}
	if err := x.applyTransitions(ctx); err != nil {
		return err
	}
	return x.commit(ctx)
}

// lock reads a cluster whole under its lock.
func (c *Clusters) lock(ctx context.Context, tx *db.Tx, cl id.Cluster) (*change, error) {
	x := &change{c: c, tx: tx, raise: map[id.Host]bool{}}
	var r dbq.LockClusterRow
	var rows []dbq.ClusterNodesRow
	var w dbq.WindowStateRow
	b := &pgx.Batch{} // each statement sees what is there once the first has the lock
	db.Read(b, &r, (*dbq.Queries).LockCluster, cl)
	db.ReadNow(b, &x.now)
	db.Read(b, &rows, (*dbq.Queries).ClusterNodes, uuids(cl))
	db.Read(b, &w, (*dbq.Queries).WindowState, cl)
	db.Read(b, &x.lost, (*dbq.Queries).LostLeases, cl)
	db.Read(b, &x.disputed, (*dbq.Queries).OpenUndecided, cl)
	db.Read(b, &x.gaps, (*dbq.Queries).UnjudgedGaps, cl)
	host.QueueReception(b, time.Now().Add(-oldestSilence), &x.hearing) // only bounds what is read
	err := tx.Send(ctx, b)
	if db.NoRows(err) {
		return nil, errNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("lock cluster %s: %w", cl, err)
	}
	x.row, x.window, x.confirmedMS, x.deafAfter = r.Cluster, w.Open, w.ConfirmedUntilMs, w.Deaf
	if w.DoubtFromMs != 0 {
		x.doubtFrom = time.UnixMilli(w.DoubtFromMs).UTC()
	}
	if err := json.Unmarshal(x.row.Spec, &x.spec); err != nil {
		return nil, fmt.Errorf("read the spec of cluster %s: %w", cl, err)
	}
	for _, r := range rows {
		x.nodes = append(x.nodes, &node{
			Node:      r.Node,
			status:    r.NodeStatus,
			gpus:      r.GPUIds,
			required:  r.Required,
			ended:     r.LeaseEndedAt,
			gone:      r.LeaseGoneAt,
			back:      reclaim{deref(r.ReclaimAt), deref(r.ReclaimAskedAt)},
			capped:    r.CappedUntil,
			operator:  r.OperatorID,
			hostName:  r.HostName,
			listener:  r.Listener,
			connected: deref(r.ConnectedAt),
			doubts:    r.Doubts,
			protocol:  r.Protocol,
		})
	}
	return x, nil
}

// oldestSilence is how far back gaps of our hearing matter to what is decided at present.
const oldestSilence = 24 * time.Hour

// maxSteps bounds how many transitions follow from one set of facts: at barrier, started, exited, gone.
const maxSteps = 8

// applyTransitions applies transitions until the facts ask for no more.
func (x *change) applyTransitions(ctx context.Context) error {
	for range maxSteps {
		d, ok := Next(State(x.row.State), x.facts())
		if !ok {
			return nil
		}
		x.apply(d)
	}
	return fmt.Errorf("cluster %s finds no rest in state %s", x.row.ID, x.row.State)
}

// facts is what Next decides from.
func (x *change) facts() Facts {
	f := Facts{
		Now:           x.now,
		Go:            x.row.GoAt != nil,
		WindowOpen:    x.sure(),
		MoneyReason:   Reason(x.row.MoneyReason),
		Ignore:        x.spec.OnNodeFailure == "ignore",
		Replace:       x.spec.OnNodeFailure == "replace",
		LossGrace:     x.c.cfg.LossGrace,
		StartSilence:  x.c.cfg.StartSilence,
		StartDeadline: deref(x.row.StartDeadline),
		MaxUntil:      deref(x.maxUntil()),
		ReplaceUntil:  deref(x.row.ReplaceUntil),
		ReplaceNote:   x.row.ReplaceNote,
		Ran:           x.row.RunningAt != nil,
	}
	f.Dispute = x.disputeFacts()
	if x.living() {
		f.RunUntil = deref(x.row.RunUntil) // without a live lease nothing runs that could outlast it
	}
	whole := true
	for _, n := range x.nodes {
		whole = whole && n.required
		f.Nodes = append(f.Nodes, NodeFacts{
			Rank:       int(n.Rank),
			State:      NodeState(n.State),
			Reason:     Reason(n.Reason),
			Detail:     n.Detail,
			Required:   n.required,
			Started:    n.StartedAt != nil,
			Exit:       intp(n.ExitCode),
			ExitSeen:   deref(n.ExitAt),
			ReportedAt: n.status.ReportedAt,
			Since:      x.now.Add(-x.silentFor(n, n.Since)),
			Gone:       n.gone != nil,
			Ended:      n.ended != nil,
			Doubted: len(x.nodes) > 1 && NodeState(n.State) == NodeLost &&
				(n.bondLow || fairness.DoubtIsFinal(n.doubts, n.Since.UnixMilli())),
		})
	}
	f.RestartOnFail = whole && x.spec.Restart == "on_failure" && x.row.QuickFailures < maxQuickFailures
	return f
}

// maxUntil is the end that max_duration sets, once the cluster has run.
func (x *change) maxUntil() *time.Time {
	if x.row.RunningAt == nil {
		return nil
	}
	return notAfter(x.now, x.row.RunningAt, x.row.MaxDurationS)
}

// step moves a node by its table; an event that means nothing in its state changes nothing.
func (x *change) step(n *node, e NodeEvent, r Reason, detail string) bool {
	t, ok := NextNode(NodeState(n.State), e)
	if !ok {
		return false
	}
	n.State, n.Since, n.dirty = string(t.To), x.now, true
	if e != NodeGone && e != NodeDismissed { // what ended it stays visible
		n.Reason, n.Detail = string(r), detail
	}
	if r == ReasonScratchFailed && (t.To == NodeFailed || t.To == NodeLost) {
		x.notifyScratch(n, detail)
	}
	rank := n.Rank
	x.events = append(x.events, dbq.InsertClusterEventParams{
		ClusterID: x.row.ID,
		At:        x.now,
		Kind:      "node_" + string(t.To),
		Rank:      &rank,
		Title:     fmt.Sprintf("Rank %d: %s", rank, lowerFirst(t.Title)),
		Detail:    join(r.Happened(), detail),
		Data:      []byte("{}"),
	})
	return true
}

// addEvent writes a line into the cluster's timeline.
func (x *change) addEvent(kind, title, detail string) {
	x.events = append(x.events, dbq.InsertClusterEventParams{
		ClusterID: x.row.ID, At: x.now, Kind: kind, Title: title, Detail: detail, Data: []byte("{}"),
	})
}

// commit writes everything in the order of locks. The transaction itself is its caller's.
func (x *change) commit(ctx context.Context) error {
	x.closeWindow()
	if State(x.row.State).Ended() && x.reportsComplete() {
		x.locked = append(x.locked, x.settle)
	}
	hosts := maps.Clone(x.raise)
	for _, n := range x.freed {
		hosts[n.HostID] = true
	}
	if len(hosts) > 0 {
		if err := x.raiseHosts(ctx, slices.SortedFunc(maps.Keys(hosts), id.Host.Compare)); err != nil {
			return fmt.Errorf("lock hosts of cluster %s and raise their revisions: %w", x.row.ID, err)
		}
	}
	for _, n := range x.freed {
		if err := host.EndClaims(ctx, x.tx, n.LeaseID.UUID(), host.EndReleased); err != nil {
			return fmt.Errorf("end the claims of %s: %w", n.LeaseID, err)
		}
	}
	for _, book := range x.locked {
		if err := book(ctx); err != nil {
			return fmt.Errorf("books of cluster %s: %w", x.row.ID, err)
		}
	}
	return x.save(ctx)
}

// raiseHosts locks the hosts and raises the revisions of those whose desired state changes.
func (x *change) raiseHosts(ctx context.Context, hosts []id.Host) error {
	b := &pgx.Batch{}
	host.QueueLock(b, hosts)
	if len(x.raise) > 0 {
		host.QueueRevision(b, x.tx, x.c.bus, slices.SortedFunc(maps.Keys(x.raise), id.Host.Compare))
	}
	return x.tx.Send(ctx, b)
}

// living reports whether the cluster has a lease that has not ended.
func (x *change) living() bool {
	return slices.ContainsFunc(x.nodes, func(n *node) bool { return n.ended == nil })
}

func (x *change) allGone() bool {
	return !slices.ContainsFunc(x.nodes, func(n *node) bool { return n.gone == nil })
}

func (x *change) save(ctx context.Context) error {
	b := &pgx.Batch{}
	x.queueWrites(b)
	if err := x.tx.Send(ctx, b); err != nil {
		return fmt.Errorf("save cluster %s: %w", x.row.ID, err)
	}
	if len(x.events) > 0 {
		x.tx.AfterCommit(func() { x.c.bus.Changed(bus.TopicCluster(x.row.ID), bus.TopicOrg(x.row.OrgID)) })
	}
	return nil
}

// queueWrites queues the writes of the cluster's own rows.
func (x *change) queueWrites(b *pgx.Batch) {
	for _, n := range x.nodes {
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
		})
	}
	x.queueFacts(b)
	for _, e := range x.events {
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
