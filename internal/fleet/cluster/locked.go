package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
)

// lockedCluster is a cluster under its lock: as it was read, and as what was decided since has changed it. Its facets
// decide. They neither read nor write: what follows beyond the cluster itself they add to the effects, which a writer
// stores. Each facet uses only those above it.
type lockedCluster struct {
	cfg  *Config
	now  time.Time // PostgreSQL's, read under the lock
	row  *dbq.Cluster
	spec market.Spec

	looked bool // by the watchdog, at everything

	out       *effects
	members   *members
	news      *news
	billing   *billing
	doubts    *doubts
	preflight *preflight
	placement *placement
	life      *life
	reports   *reports
}

// newLocked returns a locked cluster of which nothing else is known yet.
func newLocked(cfg *Config, now time.Time, row *dbq.Cluster, spec market.Spec, nodes []*node) *lockedCluster {
	x := &lockedCluster{cfg: cfg, now: now, row: row, spec: spec, out: &effects{raise: map[id.Host]bool{}}}
	x.members = &members{cfg: cfg, now: now, row: row, nodes: nodes}
	x.news = &news{now: now, row: row, spec: spec, out: x.out}
	x.billing = &billing{cfg: cfg, now: now, row: row, out: x.out, members: x.members, news: x.news}
	x.doubts = &doubts{now: now, row: row, out: x.out, members: x.members, news: x.news}
	x.preflight = &preflight{row: row, out: x.out, members: x.members, news: x.news}
	x.placement = &placement{now: now, row: row, members: x.members}
	x.life = &life{
		cfg: cfg, now: now, row: row, spec: spec, out: x.out, members: x.members, news: x.news, billing: x.billing,
		doubts: x.doubts, preflight: x.preflight, placement: x.placement,
	}
	x.reports = &reports{now: now, row: row, spec: spec, out: x.out, members: x.members, news: x.news, life: x.life}
	return x
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
	var r dbq.LockClusterRow
	var now time.Time
	var rows []dbq.ClusterNodesRow
	var w dbq.WindowStateRow
	var lost []dbq.LostLeasesRow
	var disputed []dbq.OpenUndecidedRow
	var gaps []dbq.UnjudgedGapsRow
	var hearing host.Reception
	b := &pgx.Batch{} // each statement sees the state after the first has the lock
	db.Read(b, &r, (*dbq.Queries).LockCluster, cl)
	db.ReadNow(b, &now)
	db.Read(b, &rows, (*dbq.Queries).ClusterNodes, id.UUIDs(cl))
	db.Read(b, &w, (*dbq.Queries).WindowState, cl)
	db.Read(b, &lost, (*dbq.Queries).LostLeases, cl)
	db.Read(b, &disputed, (*dbq.Queries).OpenUndecided, cl)
	db.Read(b, &gaps, (*dbq.Queries).UnjudgedGaps, cl)
	host.QueueReception(b, time.Now().Add(-oldestSilence), &hearing) // only bounds what is read
	err := tx.Send(ctx, b)
	if db.NoRows(err) {
		return nil, errNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("lock cluster %s: %w", cl, err)
	}
	var spec market.Spec
	if err := json.Unmarshal(r.Cluster.Spec, &spec); err != nil {
		return nil, fmt.Errorf("%w of %s: %w", errUnreadable, cl, err)
	}
	x := newLocked(m.cfg, now, &r.Cluster, spec, nodesOf(rows))
	x.members.hearing, x.doubts.disputed, x.reports.lost = hearing, disputed, lost
	x.billing.window, x.billing.confirmedMS, x.billing.deafAfter = w.Open, w.ConfirmedUntilMs, w.Deaf
	if x.billing.gaps = gaps; w.DoubtFromMs != 0 {
		x.billing.doubtFrom = time.UnixMilli(w.DoubtFromMs).UTC()
	}
	return x, nil
}

// nodesOf returns the nodes of a locked cluster.
func nodesOf(rows []dbq.ClusterNodesRow) []*node {
	nodes := make([]*node, len(rows))
	for i, r := range rows {
		nodes[i] = &node{
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
		}
	}
	return nodes
}

// oldestSilence is how far back gaps in what the control plane received matter for present decisions.
const oldestSilence = 24 * time.Hour
