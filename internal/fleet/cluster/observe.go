package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Observe takes in what a host reports of its leases. Leases of other hosts and old epochs are refused, reports that
// come late or twice change nothing. Most reports only move when the node was last well, which takes no lock; what
// changes a cluster is applied in one transaction per cluster. gone are ended leases whose claims ended with this
// report (host.Report.Gone). Take in the report's segments first: a cluster of which nothing is left is settled. When
// an error is returned the report must come again.
func (c *Clusters) Observe(ctx context.Context, hostID id.Host, s agentapi.Sync, gone []id.Lease) error {
	clock, rows, err := c.known(ctx, hostID, s, gone)
	if err != nil {
		return fmt.Errorf("clock for %s, and its leases: %w", hostID, err)
	}
	at := reportMoment(clock, s)
	c.refuseForeign(hostID, s, rows)

	var all []leaseReport
	byCluster := map[id.Cluster][]leaseReport{}
	for _, row := range rows {
		h, late := read(row, s, clock, at)
		if late {
			continue
		}
		h.gone = h.gone || (row.LeaseGoneAt == nil && slices.Contains(gone, row.LeaseID))
		all = append(all, h)
		if h.matters(h.goodMS(s.BootID)) {
			byCluster[row.Node.ClusterID] = append(byCluster[row.Node.ClusterID], h)
		}
	}
	if err := c.saveStatuses(ctx, s, at, all); err != nil {
		return err
	}
	if clock.LogsWait && s.Full {
		if err := c.db.Q.ForgetLogs(ctx, hostID, uuids(named(s)...)); err != nil {
			return fmt.Errorf("kept logs of %s: %w", hostID, err)
		}
		if err := c.db.Q.ForgetLostLogs(ctx, hostID, uuids(named(s)...)); err != nil {
			return fmt.Errorf("kept logs of lost leases on %s: %w", hostID, err)
		}
	}
	for _, cl := range order(byCluster) {
		err := c.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			return c.alter(ctx, tx, cl, func(ctx context.Context, x *change) error {
				for _, h := range byCluster[cl] {
					x.applyReport(h)
				}
				return nil
			})
		})
		if err != nil {
			return fmt.Errorf("report of %s on %s: %w", hostID, cl, err)
		}
	}
	return nil
}

// known reads what a report is read by: the clocks, and after them the leases it may speak of.
func (c *Clusters) known(ctx context.Context, hostID id.Host, s agentapi.Sync,
	gone []id.Lease) (clock dbq.ReportClockRow, rows []dbq.HostLeasesRow, err error) {
	p := db.NewPipe(c.db.Q)
	askClock := p.Q.ReportClock(ctx, []dbq.ReportClockParams{{HostID: hostID, BootID: s.BootID}})
	askLeases := p.Q.HostLeases(ctx, []dbq.HostLeasesParams{{HostID: hostID, Named: uuids(append(named(s), gone...)...)}})
	p.Send(ctx)
	askClock.QueryRow(db.Keep(p, &clock))
	askLeases.Query(db.Keep(p, &rows))
	return clock, rows, p.Close()
}

// reportMoment is when the report was made, on PostgreSQL's clock: through the newest time anchor of the host's boot,
// so that a report that was long under way proves nothing later than it could know. Without an anchor it is now.
func reportMoment(r dbq.ReportClockRow, s agentapi.Sync) time.Time {
	if r.ServerMs == 0 {
		return r.Now
	}
	a := agentapi.Anchor{BootMS: r.BootMs, ServerMS: r.ServerMs}
	if at := time.UnixMilli(a.At(s.BootMS)).UTC(); at.Before(r.Now) {
		return at
	}
	return r.Now
}

// named are the leases a report speaks of.
func named(s agentapi.Sync) []id.Lease {
	var out []id.Lease
	for _, l := range s.Leases {
		if v, err := id.Parse[id.Lease](l.Lease); err == nil {
			out = append(out, v)
		}
	}
	return out
}

func (c *Clusters) refuseForeign(hostID id.Host, s agentapi.Sync, rows []dbq.HostLeasesRow) {
	for _, l := range s.Leases {
		own := slices.IndexFunc(rows, func(r dbq.HostLeasesRow) bool { return r.LeaseID.String() == l.Lease })
		switch {
		case own < 0:
			c.log.Warn("refused: a host reports a lease that is not its own", "host", hostID, "lease", clip(l.Lease, 64))
		case l.Epoch > int(rows[own].LeaseEpoch):
			c.log.Warn("refused: a host reports an epoch that never was", "host", hostID, "lease", l.Lease, "epoch", l.Epoch)
		}
	}
}

// saveStatuses keeps what was said last of each node, and tells pages whose progress moved.
func (c *Clusters) saveStatuses(ctx context.Context, s agentapi.Sync, at time.Time, all []leaseReport) error {
	p := dbq.SaveNodeStatusesParams{BootID: s.BootID, BootMs: s.BootMS, ReportedAt: at}
	moved := map[id.Cluster]bool{}
	for _, h := range all {
		if !slices.Equal(h.kept, h.row.LogsKept) {
			if err := c.saveLogsKept(ctx, h); err != nil {
				return fmt.Errorf("kept logs of %s: %w", h.row.Node.ID, err)
			}
		}
		if h.row.LeaseGoneAt != nil || (h.now == nil && !h.gone) || h.row.Node.LeaseID != h.row.LeaseID {
			continue
		}
		var st agentapi.LeaseStatus
		if h.now != nil {
			st = *h.now
		}
		progress, err := json.Marshal(tidy(st.Progress))
		if err != nil {
			return err
		}
		paths, err := json.Marshal(knownPaths(st.Paths, int(h.row.NodeCount)))
		if err != nil {
			return err
		}
		if !sameJSON(progress, h.row.NodeStatus.Progress) || !sameJSON(paths, h.row.NodeStatus.Paths) {
			moved[h.row.Node.ClusterID] = true
		}
		p.Nodes = append(p.Nodes, uuids(h.row.Node.ID)...)
		p.Epochs = append(p.Epochs, h.row.LeaseEpoch)
		p.GoodMs = append(p.GoodMs, h.goodMS(s.BootID))
		p.Good = append(p.Good, !unwell(st))
		trouble, why := troubleOf(st)
		p.Troubles, p.TroubleDetails = append(p.Troubles, string(trouble)), append(p.TroubleDetails, why)
		p.PeersDown, p.PeersFromMs = append(p.PeersDown, arrayLiteral(h.down)),
			append(p.PeersFromMs, arrayLiteral(h.downFrom))
		p.Progress = append(p.Progress, string(progress))
		p.Paths = append(p.Paths, string(paths))
	}
	if len(p.Nodes) == 0 {
		return nil
	}
	if err := c.saveGaps(ctx, s, at, all); err != nil {
		return err
	}
	if err := c.db.Q.SaveNodeStatuses(ctx, p); err != nil {
		return fmt.Errorf("keep node statuses: %w", err)
	}
	for cl := range moved {
		c.bus.Changed(bus.TopicCluster(cl))
	}
	return nil
}

// saveLogsKept keeps of which epochs a host has the log of a lease, also when the lease's rank went on elsewhere.
func (c *Clusters) saveLogsKept(ctx context.Context, h leaseReport) error {
	if h.row.Node.LeaseID != h.row.LeaseID {
		return c.db.Q.SaveLostLogsKept(ctx, h.kept, h.row.LeaseID)
	}
	return c.db.Q.SaveLogsKept(ctx, h.kept, h.row.Node.ID)
}

// applyReport puts one host's word into the change. The rows were read without the lock, so all is checked again.
func (x *change) applyReport(h leaseReport) {
	n := x.byLease(h.row.LeaseID)
	if n == nil {
		if h.gone {
			x.partLost(h.row.LeaseID)
		}
		return
	}
	if h.gone && n.ended != nil && n.gone == nil {
		x.part(n)
		return
	}
	st := h.now
	if st == nil || n.ended != nil || st.Epoch != int(n.Epoch) {
		return
	}
	if x.startsAgain(n, *st) {
		r, why := troubleOf(*st)
		n.WgKey, n.Endpoints = "", []string{}
		x.step(n, NodeAgain, r, why)
		x.raiseLive() // the others wait for it, and blame nobody
	}
	if st.WGKey != "" && len(st.WGKey) <= 64 && (st.WGKey != n.WgKey || !slices.Equal(st.Endpoints, n.Endpoints)) {
		n.WgKey, n.Endpoints, n.dirty = st.WGKey, endpoints(st.Endpoints), true
		x.raiseLive() // the peers learn where it is
	}
	if st.Preflight != nil && len(n.Preflight) <= len("{}") {
		if b, err := json.Marshal(st.Preflight); err == nil && len(b) < 64<<10 {
			n.Preflight, n.dirty = b, true
		}
	}
	if st.OwnerMB > 0 && !n.OwnerUseTold {
		n.OwnerUseTold, n.dirty = true, true
		x.addOwnerUseEvent(n, st.OwnerMB)
	}
	if newlyCapped(n.capped, n.CapTold, x.now) {
		n.CapTold, n.dirty = n.capped, true
		x.addCapEvent(n)
	}
	if d := st.ImageDigest; d != "" && x.row.ImageDigest == "" && len(d) <= 128 {
		x.row.ImageDigest = d
	}
	if st.Started && x.row.GoAt != nil && n.StartedAt == nil {
		// By its host's proof, but not before we opened the barrier: a report that was long under way, as from an agent
		// that was killed meanwhile, takes nothing from what ran.
		from := latest(h.from, *x.row.GoAt)
		n.StartedAt, n.dirty = &from, true
	}
	e, reason, detail := nodeEvent(*st, len(x.nodes))
	if e == NodeReportsExited {
		if n.StartedAt == nil {
			return // before the barrier was opened nothing of the renter's can have ended
		}
		if n.ExitCode == nil {
			code, at := int32(*st.ExitCode), latest(h.exit, *n.StartedAt)
			n.ExitCode, n.ExitAt, n.dirty = &code, &at, true
			if code != 0 {
				x.raiseLive() // hear of the others soon: see exited
			}
		}
	}
	if x.step(n, e, reason, detail) && e == NodeReportsFailed && reason == ReasonPreflightFailed {
		x.raiseLive() // hear of the others soon: see startFailed
	}
}

// startsAgain reports whether a node that had told where it is has died before the barrier was opened, and is started
// again by its host. A report of it that is overtaken by a later one is mended by the next: that tells the key again.
func (x *change) startsAgain(n *node, st agentapi.LeaseStatus) bool {
	return st.StartsAgain && st.WGKey == "" && n.WgKey != "" && n.StartedAt == nil && x.row.GoAt == nil
}

// part notes that nothing of a node is left on its host, or that the host was given up: its GPUs are free again.
func (x *change) part(n *node) {
	n.gone = &x.now
	x.freed = append(x.freed, n)
	x.step(n, NodeGone, ReasonNone, "")
	x.book(func(ctx context.Context) error { return metering.LeaseGone(ctx, x.tx, n.LeaseID) })
}

// partLost is part for a lease whose rank went on elsewhere.
func (x *change) partLost(l id.Lease) {
	i := slices.IndexFunc(x.lost, func(r dbq.LostLeasesRow) bool { return r.LostLease == l })
	if i < 0 {
		return
	}
	x.freed = append(x.freed, &node{Node: dbq.Node{LeaseID: l, HostID: x.lost[i].LostHost}})
	x.lost = slices.Delete(x.lost, i, i+1)
	x.book(func(ctx context.Context) error { return metering.LeaseGone(ctx, x.tx, l) })
}

const maxEndpoints = 8

// endpoints bounds the addresses a host gives to its peers.
func endpoints(in []string) []string {
	out := []string{}
	for _, e := range in {
		if len(e) > 0 && len(e) <= 128 && len(out) < maxEndpoints {
			out = append(out, clip(e, 128))
		}
	}
	return out
}

// tidy bounds what a host says about progress.
func tidy(p agentapi.Progress) agentapi.Progress {
	p.Step, p.WaitingFor = clip(p.Step, 40), clip(p.WaitingFor, 200)
	p.Layers = slices.Clone(p.Layers[:min(len(p.Layers), 64)])
	for i := range p.Layers {
		p.Layers[i].Digest = clip(p.Layers[i].Digest, 80)
	}
	return p
}

func sameJSON(a, b []byte) bool {
	var x, y agentapi.Progress
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return bytes.Equal(a, b)
	}
	xs, _ := json.Marshal(x)
	ys, _ := json.Marshal(y)
	return bytes.Equal(xs, ys)
}

// arrayLiteral is PostgreSQL's text form of an integer array.
func arrayLiteral[T int32 | int64](v []T) string {
	return "{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ","), "[]") + "}"
}

// order gives the clusters in the order of their locks.
func order[V any](m map[id.Cluster]V) []id.Cluster {
	out := make([]id.Cluster, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, id.Cluster.Compare)
	return out
}
