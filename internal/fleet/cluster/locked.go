package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
)

// lockedCluster is a cluster under its lock: as it was read, and as what was decided since has changed it. Its methods
// decide. They neither read nor write: what follows beyond the cluster itself they add to its effects, which a writer
// stores.
type lockedCluster struct {
	cfg  *Config
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
	hearing   host.Reception         // when the control plane could not receive from hosts
	gaps      []dbq.UnjudgedGapsRow  // time without attestation that is not decided yet
	disputed  []dbq.OpenUndecidedRow // undecided suspensions that go on
	// lost are leases of lost hosts whose ranks continued elsewhere and of which something may still be left on the host.
	lost []dbq.LostLeasesRow

	looked bool // by the watchdog, at everything

	effects
}

// node is one rank of a locked cluster.
type node struct {
	dbq.Node
	status    dbq.NodeStatus
	gpus      []id.GPU
	required  bool
	ended     *time.Time // lease: no longer desired
	gone      *time.Time // lease: nothing left on the host
	gpusFree  *time.Time // lease: its claims have ended, and its host uploads; nil also if they ended with gone
	flushGPUs int64      // lease: what the disk is worth that the upload keeps, in thousandths of GPUs
	back      reclaim    // of its host by the operator
	operator  id.Org     // of its host
	hostName  string
	listener  string     // the NATS server that its host is connected to
	connected time.Time  // start of that connection
	doubts    []int64    // when its host was in doubt within the last two hours, in any gang (unix ms)
	bondLow   bool       // so little of its bond is left that its failure is final
	protocol  int32      // of its host's agent
	capped    *time.Time // its host's data cap is used up until then
	dirty     bool
	moved     bool // LeaseID and HostID are new
}

// errUnreadable is the error of a cluster whose stored spec this version cannot read.
var errUnreadable = errors.New("read the spec")

// lock locks a cluster and reads all of it.
func (m *machine) lock(ctx context.Context, tx *db.Tx, cl id.Cluster) (*lockedCluster, error) {
	x := &lockedCluster{cfg: m.cfg, effects: effects{raise: map[id.Host]bool{}}}
	var r dbq.LockClusterRow
	var rows []dbq.ClusterNodesRow
	var w dbq.WindowStateRow
	b := &pgx.Batch{} // each statement sees the state after the first has the lock
	db.Read(b, &r, (*dbq.Queries).LockCluster, cl)
	db.ReadNow(b, &x.now)
	db.Read(b, &rows, (*dbq.Queries).ClusterNodes, id.UUIDs(cl))
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
		return nil, fmt.Errorf("%w of %s: %w", errUnreadable, cl, err)
	}
	for _, r := range rows {
		x.nodes = append(x.nodes, &node{
			Node:      r.Node,
			status:    r.NodeStatus,
			gpus:      r.GPUIds,
			required:  r.Required,
			ended:     r.LeaseEndedAt,
			gone:      r.LeaseGoneAt,
			gpusFree:  r.GpusFreeAt,
			flushGPUs: r.FlushGPUThousandths,
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

// oldestSilence is how far back gaps in what the control plane received matter for present decisions.
const oldestSilence = 24 * time.Hour

// facts returns what Next decides from.
func (x *lockedCluster) facts() lifecycle.Facts {
	f := lifecycle.Facts{
		Now:           x.now,
		Go:            x.row.GoAt != nil,
		WindowOpen:    x.sure(),
		MoneyReason:   lifecycle.Reason(x.row.MoneyReason),
		Ignore:        x.spec.OnNodeFailure == "ignore",
		Replace:       x.spec.OnNodeFailure == "replace",
		LossGrace:     x.cfg.LossGrace,
		StartSilence:  x.cfg.StartSilence,
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
		f.Nodes = append(f.Nodes, lifecycle.NodeFacts{
			Rank:       int(n.Rank),
			State:      lifecycle.NodeState(n.State),
			Reason:     lifecycle.Reason(n.Reason),
			Detail:     n.Detail,
			Required:   n.required,
			Started:    n.StartedAt != nil,
			Exit:       intp(n.ExitCode),
			ExitSeen:   deref(n.ExitAt),
			ReportedAt: n.status.ReportedAt,
			Since:      x.now.Add(-x.silentFor(n, n.Since)),
			Gone:       n.gone != nil,
			Ended:      n.ended != nil,
			Doubted: len(x.nodes) > 1 && lifecycle.NodeState(n.State) == lifecycle.NodeLost &&
				(n.bondLow || fairness.DoubtIsFinal(n.doubts, n.Since.UnixMilli())),
		})
	}
	f.RestartOnFail = whole && x.spec.Restart == "on_failure" && x.row.QuickFailures < maxQuickFailures
	return f
}

// maxUntil returns the end that max_duration sets, once the cluster has run.
func (x *lockedCluster) maxUntil() *time.Time {
	if x.row.RunningAt == nil {
		return nil
	}
	return notAfter(x.now, x.row.RunningAt, x.row.MaxDurationS)
}

// step moves a node by its table. It returns false and changes nothing if the event has no meaning in the node's state.
func (x *lockedCluster) step(n *node, e lifecycle.NodeEvent, r lifecycle.Reason, detail string) bool {
	t, ok := lifecycle.NextNode(lifecycle.NodeState(n.State), e)
	if !ok {
		return false
	}
	n.State, n.Since, n.dirty = string(t.To), x.now, true
	if e != lifecycle.NodeGone && e != lifecycle.NodeDismissed { // the reason for its end stays visible
		n.Reason, n.Detail = string(r), detail
	}
	if r == lifecycle.ReasonScratchFailed && (t.To == lifecycle.NodeFailed || t.To == lifecycle.NodeLost) {
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

// addEvent adds an event to the cluster's timeline.
func (x *lockedCluster) addEvent(kind, title, detail string) {
	x.events = append(x.events, dbq.InsertClusterEventParams{
		ClusterID: x.row.ID, At: x.now, Kind: kind, Title: title, Detail: detail, Data: []byte("{}"),
	})
}

// living reports whether the cluster has a lease that has not ended.
func (x *lockedCluster) living() bool {
	return slices.ContainsFunc(x.nodes, func(n *node) bool { return n.ended == nil })
}

func (x *lockedCluster) allGone() bool {
	return !slices.ContainsFunc(x.nodes, func(n *node) bool { return n.gone == nil })
}
