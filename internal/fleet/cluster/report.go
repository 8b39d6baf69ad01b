package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Hosts takes what hosts report about their leases, and answers with what they should run.
type Hosts struct {
	db      *db.DB
	bus     *bus.Bus // may be nil
	cfg     *Config
	log     *slog.Logger
	machine *machine
}

// ApplyReport applies what a host reports of its leases. Leases of other hosts and unknown epochs are logged and left
// out; reports that come late or twice change nothing. Most reports only store that a node is well, which takes no
// lock; what changes a cluster is applied in one transaction per cluster, and what PostgreSQL refuses of one costs the
// others nothing. gone are ended leases whose claims ended with this report (host.Report.Gone). Ingest the report's
// segments first: a cluster of which nothing is left is settled. After an error the report must be sent again.
func (hs *Hosts) ApplyReport(ctx context.Context, hostID id.Host, s agentapi.Sync, gone []id.Lease) error {
	clock, rows, err := hs.leasesOf(ctx, hostID, s, gone)
	if err != nil {
		return fmt.Errorf("clock and leases of %s: %w", hostID, err)
	}
	hs.logForeign(hostID, s, rows)
	at := reportMoment(clock, s)
	var all []leaseReport
	for _, row := range rows {
		if r, late := readLease(row, s, clock, at, gone); !late {
			all = append(all, r)
		}
	}
	admitUploads(all)
	locked := map[id.Cluster][]leaseReport{}
	for _, r := range all {
		if r.needsLock() {
			locked[r.row.Node.ClusterID] = append(locked[r.row.Node.ClusterID], r)
		}
	}
	if err := hs.saveStatuses(ctx, s, at, all); err != nil {
		return err
	}
	if clock.LogsWait && s.Full {
		if err := hs.forgetLogs(ctx, hostID, s); err != nil {
			return err
		}
	}
	var failed []error
	for _, cl := range order(locked) {
		err := hs.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			return hs.machine.alter(ctx, tx, cl, func(x *lockedCluster) error {
				for _, r := range locked[cl] {
					x.reports.applyReport(r)
				}
				return nil
			})
		})
		if db.IsData(err) || errors.Is(err, errUnreadable) { // again and again: the other leases must not wait for it
			hs.log.Error("what a host reports of a cluster cannot be stored", "host", hostID, "cluster", cl, "err", err)
		} else if err != nil {
			failed = append(failed, fmt.Errorf("report of %s on %s: %w", hostID, cl, err))
		}
	}
	return errors.Join(failed...)
}

// leasesOf reads the clocks that a report is read by, and after them the leases of the host that it may name. Only the
// host's own leases are among them: this is the one place that decides whose a reported lease is.
func (hs *Hosts) leasesOf(ctx context.Context, hostID id.Host, s agentapi.Sync,
	gone []id.Lease) (clock dbq.ReportClockRow, rows []dbq.HostLeasesRow, err error) {
	b := &pgx.Batch{}
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		clock, err = q.ReportClock(ctx, hostID, s.BootID)
		return err
	})
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) (err error) {
		rows, err = q.HostLeases(ctx, hostID, id.UUIDs(append(named(s), gone...)...))
		return err
	})
	err = db.Send(ctx, hs.db.Q, b)
	return clock, rows, err
}

// forgetLogs removes kept logs that a full report no longer shows.
func (hs *Hosts) forgetLogs(ctx context.Context, hostID id.Host, s agentapi.Sync) error {
	if err := hs.db.Q.ForgetLogs(ctx, hostID, id.UUIDs(named(s)...)); err != nil {
		return fmt.Errorf("kept logs of %s: %w", hostID, err)
	}
	if err := hs.db.Q.ForgetLostLogs(ctx, hostID, id.UUIDs(named(s)...)); err != nil {
		return fmt.Errorf("kept logs of lost leases on %s: %w", hostID, err)
	}
	return nil
}

// reportMoment is when the report was made, on PostgreSQL's clock. It is computed from the newest time anchor of the
// host's boot, so that a delayed report proves nothing later than it could know. Without an anchor it is now.
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

// named are the leases that a report names.
func named(s agentapi.Sync) []id.Lease {
	var out []id.Lease
	for _, l := range s.Leases {
		if v, err := id.Parse[id.Lease](l.Lease); err == nil {
			out = append(out, v)
		}
	}
	return out
}

// logForeign logs what a report names and is not the host's: leftovers of another life of the machine, or a lie.
func (hs *Hosts) logForeign(hostID id.Host, s agentapi.Sync, rows []dbq.HostLeasesRow) {
	for _, l := range s.Leases {
		own := slices.IndexFunc(rows, func(r dbq.HostLeasesRow) bool { return r.LeaseID.String() == l.Lease })
		switch {
		case own < 0:
			hs.log.Warn("a host reports a lease that is not its own: left out", "host", hostID, "lease", clip(l.Lease, 64),
				"state", l.State)
		case l.Epoch > int(rows[own].LeaseEpoch):
			hs.log.Warn("a host reports an epoch that never was: left out", "host", hostID, "lease", l.Lease, "epoch", l.Epoch)
		}
	}
}

// saveStatuses stores the last report of each node, and notifies pages whose progress changed. If PostgreSQL refuses a
// value, the nodes are stored one by one, so that only the node with that value lacks its report.
func (hs *Hosts) saveStatuses(ctx context.Context, s agentapi.Sync, at time.Time, all []leaseReport) error {
	err := hs.saveTogether(ctx, s, at, all)
	if !db.IsData(err) {
		return err
	}
	for i, r := range all {
		err := hs.saveTogether(ctx, s, at, all[i:i+1])
		if err != nil && !db.IsData(err) {
			return err
		}
		if err != nil {
			hs.log.Error("what a host reports of a lease cannot be stored", "lease", r.row.LeaseID, "err", err)
		}
	}
	return nil
}

func (hs *Hosts) saveTogether(ctx context.Context, s agentapi.Sync, at time.Time, all []leaseReport) error {
	p := dbq.SaveNodeStatusesParams{BootID: s.BootID, BootMs: s.BootMS, ReportedAt: at}
	changed := map[id.Cluster]bool{}
	for _, r := range all {
		if !slices.Equal(r.kept, r.row.LogsKept) {
			if err := hs.saveLogsKept(ctx, r); err != nil {
				return fmt.Errorf("kept logs of %s: %w", r.row.Node.ID, err)
			}
		}
		if r.row.LeaseGoneAt != nil || (r.now == nil && !r.gone) || r.row.Node.LeaseID != r.row.LeaseID {
			continue
		}
		moved, err := r.appendStatus(&p)
		if err != nil {
			return err
		}
		if moved {
			changed[r.row.Node.ClusterID] = true
		}
	}
	if len(p.Nodes) == 0 {
		return nil
	}
	if err := hs.saveGaps(ctx, s, at, all); err != nil {
		return err
	}
	if err := hs.db.Q.SaveNodeStatuses(ctx, p); err != nil {
		return fmt.Errorf("store node statuses: %w", err)
	}
	for cl := range changed {
		hs.bus.Changed(bus.TopicCluster(cl))
	}
	return nil
}

// appendStatus adds the node's status to p. moved reports whether its progress or its paths changed.
func (r leaseReport) appendStatus(p *dbq.SaveNodeStatusesParams) (moved bool, err error) {
	var st agentapi.LeaseStatus
	if r.now != nil {
		st = *r.now
	}
	progress, err := json.Marshal(tidy(st.Progress))
	if err != nil {
		return false, err
	}
	paths, err := json.Marshal(knownPaths(st.Paths, int(r.row.NodeCount)))
	if err != nil {
		return false, err
	}
	trouble, why := troubleOf(st)
	p.Nodes = append(p.Nodes, id.UUIDs(r.row.Node.ID)...)
	p.Epochs = append(p.Epochs, r.row.LeaseEpoch)
	p.GoodMs = append(p.GoodMs, r.goodMS)
	p.Good = append(p.Good, !unwell(st))
	p.Troubles = append(p.Troubles, string(trouble))
	p.TroubleDetails = append(p.TroubleDetails, why)
	p.PeersDown = append(p.PeersDown, arrayLiteral(r.down))
	p.PeersFromMs = append(p.PeersFromMs, arrayLiteral(r.downFrom))
	p.Progress = append(p.Progress, string(progress))
	p.Paths = append(p.Paths, string(paths))
	return !sameJSON(progress, r.row.NodeStatus.Progress) || !sameJSON(paths, r.row.NodeStatus.Paths), nil
}

// saveLogsKept stores of which epochs a host has the log of a lease, also when the lease's rank moved to another host.
func (hs *Hosts) saveLogsKept(ctx context.Context, r leaseReport) error {
	if r.row.Node.LeaseID != r.row.LeaseID {
		return hs.db.Q.SaveLostLogsKept(ctx, r.kept, r.row.LeaseID)
	}
	return hs.db.Q.SaveLogsKept(ctx, r.kept, r.row.Node.ID)
}

// tidy limits what a host reports about progress.
func tidy(p agentapi.Progress) agentapi.Progress {
	p.Step, p.WaitingFor = clip(p.Step, 40), clip(p.WaitingFor, 200)
	p.Layers = slices.Clone(p.Layers[:min(len(p.Layers), 64)])
	for i := range p.Layers {
		p.Layers[i].Digest = clip(p.Layers[i].Digest, 80)
	}
	return p
}

// sameJSON reports whether two documents hold the same values: PostgreSQL returns jsonb in a layout of its own.
func sameJSON(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return bytes.Equal(a, b)
	}
	return reflect.DeepEqual(x, y)
}

// arrayLiteral is PostgreSQL's text form of an integer array.
func arrayLiteral[T int32 | int64](v []T) string {
	return "{" + strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ","), "[]") + "}"
}

// order returns the clusters in the order in which they are locked.
func order[V any](m map[id.Cluster]V) []id.Cluster {
	out := make([]id.Cluster, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, id.Cluster.Compare)
	return out
}

// saveGaps writes down for which time no report of a host says that its ranks were well, once it is known when that
// time ended, and when the host's reports were missing. In the steady state there is nothing to write.
func (hs *Hosts) saveGaps(ctx context.Context, s agentapi.Sync, at time.Time, all []leaseReport) error {
	var g dbq.InsertRankGapsParams
	var silent dbq.InsertSilencesParams
	for _, h := range all {
		if h.now == nil || h.row.Node.LeaseID != h.row.LeaseID {
			continue
		}
		for _, gap := range h.gaps(s.BootID, hs.cfg.LostAfter) {
			g.Leases, g.Epochs = append(g.Leases, id.UUIDs(h.row.LeaseID)...), append(g.Epochs, h.row.LeaseEpoch)
			g.FromMs, g.ToMs, g.Unwell = append(g.FromMs, gap.from), append(g.ToMs, gap.to), append(g.Unwell, gap.unwell)
		}
		if before := h.row.NodeStatus.ReportedAt; h.row.Node.StartedAt != nil && at.Sub(before) > hs.cfg.LostAfter &&
			len(silent.Hosts) == 0 {
			silent.Hosts, silent.Kinds = id.UUIDs(h.row.Node.HostID), []string{"missing"}
			silent.FromMs, silent.ToMs = []int64{before.UnixMilli()}, []int64{at.UnixMilli()}
		}
	}
	if len(g.Leases) > 0 {
		if err := hs.db.Q.InsertRankGaps(ctx, g); err != nil {
			return fmt.Errorf("gaps in what hosts attest: %w", err)
		}
	}
	if len(silent.Hosts) > 0 {
		if err := hs.db.Q.InsertSilences(ctx, silent); err != nil {
			return fmt.Errorf("silence of a host: %w", err)
		}
	}
	return nil
}

type rankGap struct {
	from, to int64 // unix ms
	unwell   bool
}

// gaps are the times without attestation that end with this report.
func (h leaseReport) gaps(boot string, lostAfter time.Duration) (out []rankGap) {
	good, st := h.goodMS, h.row.NodeStatus
	if good == 0 && h.now != nil && h.now.ExitCode != nil && h.row.Node.StartedAt != nil {
		good = h.exit.UnixMilli() // an exit says that the command ran until then, and no more than a good report would
	}
	if good == 0 || st.LastGoodMs == 0 || good <= st.LastGoodMs {
		return nil
	}
	to := good
	if st.Epoch != h.row.LeaseEpoch || h.row.Node.StartedAt == nil { // a new start: attested from where it began
		to = min(good, h.from.UnixMilli())
	}
	if !h.good.IsZero() { // the report attests all time since then
		to = min(to, h.good.UnixMilli())
	}
	if to <= st.LastGoodMs {
		return nil
	}
	missing := !st.Good || st.BootID != boot || good-st.LastGoodMs > lostAfter.Milliseconds() || to != good
	if missing {
		out = append(out, rankGap{from: st.LastGoodMs, to: to})
	}
	if since := st.UnwellSinceMs; !st.Good && since != nil && *since < to {
		out = append(out, rankGap{from: *since, to: to, unwell: true})
	}
	return out
}

// DropOldFacts removes strikes and silences of more than 90 days ago, starts of more than 30 days ago and bans that are
// over, and puts starts that ended together into one row. It returns how many rows it removed or merged.
func (hs *Hosts) DropOldFacts(ctx context.Context) (n int64, err error) {
	for _, drop := range []func(context.Context) (int64, error){hs.db.Q.DropOldStrikes, hs.db.Q.DropOldSilences,
		hs.db.Q.DropOldBans, hs.db.Q.DropOldStartHolds} {
		dropped, err := drop(ctx)
		if err != nil {
			return n, fmt.Errorf("old facts about gangs: %w", err)
		}
		n += dropped
	}
	for merged := int64(1); merged > 0; n += merged {
		if merged, err = hs.db.Q.MergeStartHolds(ctx); err != nil {
			return n, fmt.Errorf("merge starts: %w", err)
		}
	}
	return n, nil
}
