package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
)

// leasedReport is a report of a host with leases that says no more than that each of them is still well.
type leasedReport struct {
	*quietReport
	at     time.Time // the report's moment on PostgreSQL's clock
	leases []leaseReport
}

// isNews reports whether a host says more of a lease than that it runs and is well.
func isNews(l agentapi.LeaseStatus) bool {
	return l.State != agentapi.NodeReady || !l.Started || !l.Good || l.Gone || l.LogKept || l.ExitCode != nil ||
		len(l.PeersDown) > 0 || l.StartsAgain
}

// compare compares a report with what is stored of the host's leases. It returns nil if anything but the time of the
// report differs; then the report must be stored in the usual way.
func (hs *Hosts) compare(r *quietReport, row dbq.QuietReportsRow, stored []dbq.LeasesOfHostsRow) *leasedReport {
	if len(stored) == 0 || len(stored) != len(r.report.Leases) || len(r.leases) != len(stored) ||
		metering.AnchorDue(r.answer.Anchor, r.report.BootMS, row.Now) {
		return nil
	}
	clock := dbq.ReportClockRow{Now: row.Now, BootMs: row.BootMs, ServerMs: row.ServerMs}
	out := &leasedReport{quietReport: r, at: reportMoment(clock, r.report)}
	live := make([]dbq.LiveLeasesRow, len(stored))
	for i, l := range stored {
		if !slices.Contains(r.leases, l.LeaseID) || l.LeaseEndedAt != nil || l.Node.LeaseID != l.LeaseID {
			return nil
		}
		h, late := readLease(hostLease(l), r.report, clock, out.at, nil)
		if late || !hs.unchanged(h, r.report.BootID) {
			return nil
		}
		out.leases = append(out.leases, h)
		live[i] = dbq.LiveLeasesRow{ID: l.LeaseID, Epoch: l.LeaseEpoch, Rank: l.Node.Rank, ClusterID: l.Node.ClusterID,
			RunUntil: l.RunUntil, StartDeadline: l.StartDeadline, NodeCount: l.NodeCount}
	}
	r.answer.Extensions = hs.extensions(live)
	return out
}

// unchanged reports whether a lease was well at the host's report before, of the same boot, and is well and the same
// now, without a gap in between.
func (hs *Hosts) unchanged(h leaseReport, boot string) bool {
	st := h.row.NodeStatus
	if h.now == nil || h.gone || h.goodMS == 0 || h.needsLock() || h.row.Node.StartedAt == nil || st.BootID != boot ||
		st.Epoch != h.row.LeaseEpoch || !st.Good || st.Trouble != "" || len(st.PeersDown) > 0 || len(h.row.LogsKept) > 0 ||
		h.at.Sub(st.ReportedAt) > hs.cfg.LostAfter || len(h.gaps(boot, hs.cfg.LostAfter)) > 0 {
		return false
	}
	moved, err := h.appendStatus(&dbq.SaveNodeStatusesParams{})
	return err == nil && !moved
}

// hostLease returns the part of l that a report is compared with.
func hostLease(l dbq.LeasesOfHostsRow) dbq.HostLeasesRow {
	return dbq.HostLeasesRow{
		Node: l.Node, NodeStatus: l.NodeStatus, LeaseID: l.LeaseID, LeaseEpoch: l.LeaseEpoch, LeaseEndedAt: l.LeaseEndedAt,
		LeaseGoneAt: l.LeaseGoneAt, ClusterState: l.ClusterState, ClusterEpoch: l.ClusterEpoch, GoAt: l.GoAt,
		StopAt: l.StopAt, NodeCount: l.NodeCount, ImageDigest: l.ImageDigest, Revision: l.Revision,
		CappedUntil: l.CappedUntil, InDoubt: l.InDoubt, LogsKept: l.LogsKept,
	}
}

// saveGood stores reports that say that all is still well, and marks those as quiet of which everything was stored. The
// statements are transactions of their own: none waits with the locks of another, and each may be repeated.
func (hs *Hosts) saveGood(ctx context.Context, all []*leasedReport) error {
	hosts := make([]id.Host, len(all))
	traffic := make(map[id.Host][]agentapi.LeaseStatus, len(all))
	var p dbq.SaveGoodStatusesParams
	for i, r := range all {
		hosts[i], traffic[r.host] = r.host, r.report.Leases
		for _, l := range r.leases {
			p.Nodes, p.Epochs = append(p.Nodes, id.UUIDs(l.row.Node.ID)...), append(p.Epochs, l.row.LeaseEpoch)
			p.Boots, p.BootMs = append(p.Boots, r.report.BootID), append(p.BootMs, r.report.BootMS)
			p.GoodMs, p.ReportedAt = append(p.GoodMs, l.goodMS), append(p.ReportedAt, r.at)
		}
	}
	if err := host.RecordTraffic(ctx, hs.db, traffic); err != nil {
		return err
	}
	slices.SortFunc(hosts, id.Host.Compare)
	if err := host.TouchHosts(ctx, hs.db, hosts); err != nil {
		return err
	}
	saved, err := hs.db.Q.SaveGoodStatuses(ctx, p)
	if err != nil {
		return fmt.Errorf("store node statuses: %w", err)
	}
	done := make(map[id.Node]bool, len(saved))
	for _, n := range saved {
		done[n] = true
	}
	for _, r := range all {
		r.quiet = !slices.ContainsFunc(r.leases, func(l leaseReport) bool { return !done[l.row.Node.ID] })
	}
	return nil
}
