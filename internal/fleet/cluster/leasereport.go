package cluster

import (
	"slices"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
)

// leaseReport is what a host's report says of one lease, compared with what is stored of that lease.
type leaseReport struct {
	row  dbq.HostLeasesRow
	now  *agentapi.LeaseStatus // of the lease's current epoch; nil when it is not in the report
	kept []int32               // epochs whose log waits on the host
	gone bool                  // nothing is left on the host, which knew that the lease had ended
	// freesGPUs: what is left on the host are uploads, which need no GPUs; see admitUploads.
	freesGPUs bool
	at        time.Time // the report's moment on PostgreSQL's clock
	from      time.Time // when the command began, on the same clock; by no more than ahead after at
	exit      time.Time // when it ended; not after at
	good      time.Time // since when it has been well without interruption; zero: not reported
	// goodMS is the moment through which the report proves the node well, unix ms; 0 when it proves nothing.
	goodMS int64
	// down are the ranks from which it receives nothing, in ascending order, and downFrom since when, unix ms.
	down     []int32
	downFrom []int64
}

// readLease reads what a report says of one lease. gone are the leases of which nothing is left by host.Report. A
// report that is older than the one before is late, and says nothing.
func readLease(row dbq.HostLeasesRow, s agentapi.Sync, clock dbq.ReportClockRow, at time.Time,
	gone []id.Lease) (h leaseReport, late bool) {
	h = leaseReport{row: row, at: at, kept: []int32{}}
	own := row.Node.LeaseID == row.LeaseID // else the rank went on elsewhere, and its status is the other host's
	if st := row.NodeStatus; own && (st.BootID == s.BootID && s.BootMS < st.BootMs || st.BootID != s.BootID &&
		at.Before(st.ReportedAt)) {
		return h, true
	}
	listed := false
	for i := range s.Leases {
		l := &s.Leases[i]
		if l.Lease != row.LeaseID.String() {
			continue
		}
		if l.LogKept {
			h.kept = append(h.kept, int32(l.Epoch))
		}
		listed = listed || !l.Gone
		if l.Epoch == int(row.LeaseEpoch) {
			h.now, h.from, h.exit = l, moment(clock, at, at.Add(ahead), l.StartBootMS), moment(clock, at, at, l.ExitBootMS)
			if l.GoodSinceBootMS > 0 {
				h.good = moment(clock, at, at, l.GoodSinceBootMS)
			}
			h.down, h.downFrom = silentPeers(row, *l, clock, at)
		}
	}
	slices.Sort(h.kept)
	// The report's revision is at least the one that took the lease away: it cannot be about to start it.
	informed := row.LeaseEndedAt != nil && s.Revision >= row.Revision
	saidGone := h.now != nil && h.now.Gone
	h.gone = row.LeaseGoneAt == nil && (slices.Contains(gone, row.LeaseID) ||
		informed && !listed && (s.Full || saidGone))
	if h.provesGood(s.BootID) {
		h.goodMS = at.UnixMilli()
	}
	return h, false
}

// silentPeers are the ranks that a report names as silent, in ascending order, and since when, unix ms: since the last
// byte that the host reports, but at most noticedLate before the first report of the silence.
func silentPeers(row dbq.HostLeasesRow, l agentapi.LeaseStatus, clock dbq.ReportClockRow,
	at time.Time) (down []int32, from []int64) {
	down = ranks(l.PeersDown)
	st := row.NodeStatus
	for _, r := range down {
		i := slices.Index(st.PeersDown, r)
		switch {
		case i >= 0 && st.Epoch == row.LeaseEpoch && len(st.PeersFromMs) == len(st.PeersDown):
			from = append(from, st.PeersFromMs[i])
			continue
		case i >= 0 && st.Epoch == row.LeaseEpoch && st.PeersSinceMs != nil: // written by an older server
			from = append(from, *st.PeersSinceMs)
			continue
		}
		since := at
		for _, p := range l.PeersDownSince {
			if p.Rank == int(r) {
				since = latest(moment(clock, at, at, p.SinceBootMS), at.Add(-noticedLate))
			}
		}
		from = append(from, since.UnixMilli())
	}
	return down, from
}

// noticedLate is how long before its first report a silence may have begun.
const noticedLate = fairness.PeerSilence + fairness.ClockSlack

// ahead is by how much a host's clock may be ahead of ours. A host's anchor is late by the travel time of the message
// that brought it, so a report that travelled faster may name a start that lies in the future. The window opens there
// nevertheless, because the segments begin there.
const ahead = 2 * time.Second

// moment converts a time on the boot's clock to PostgreSQL's clock, through the anchor that the segments use, too. It
// is at, the report's moment, when boot is not set or the result is after limit.
func moment(clock dbq.ReportClockRow, at, limit time.Time, boot int64) time.Time {
	if boot <= 0 || clock.ServerMs == 0 {
		return at
	}
	a := agentapi.Anchor{BootMS: clock.BootMs, ServerMS: clock.ServerMs}
	if t := time.UnixMilli(a.At(boot)).UTC(); !t.After(limit) {
		return t
	}
	return at
}

// provesGood reports whether the report proves the node well up to the report's moment.
func (h leaseReport) provesGood(boot string) bool {
	switch {
	case h.row.LeaseEndedAt == nil:
		return h.now != nil && h.now.Started && h.now.Good
	case h.row.StopAt == nil:
		return false
	case h.now != nil: // it was asked to stop and did: it was up until then
		return h.now.Good || obeyed(h.now.Reason)
	}
	return h.gone && h.row.NodeStatus.BootID == boot
}

// obeyed reports whether a run with this reason ended as the server or its renter wanted.
func obeyed(reason string) bool {
	switch lifecycle.Reason(reason) {
	case lifecycle.ReasonNone, lifecycle.ReasonExited, lifecycle.ReasonRunUntil, lifecycle.ReasonSuperseded:
		return true
	}
	return false
}

// unwell reports whether a status says that something is wrong with a node that has started. A node that has ended as
// it should is not well any more, but nothing is wrong with it: it must not count as lost while its end is processed.
func unwell(st agentapi.LeaseStatus) bool {
	ended := st.ExitCode != nil || ((st.State == agentapi.NodeStopping || st.State == agentapi.NodeStopped) &&
		obeyed(st.Reason))
	return !st.Good && !ended
}

// troubleOf is why a node is not well, as its host reports it: one of the reasons that are a host's fault, or none.
func troubleOf(st agentapi.LeaseStatus) (lifecycle.Reason, string) {
	r := lifecycle.Reason(st.Trouble)
	if !unwell(st) || !r.IsHostFault() {
		return lifecycle.ReasonNone, ""
	}
	return r, clip(st.TroubleDetail, 500)
}

// nodeEvent is the event of the node's state table that a status stands for, with reason and detail; "" if there is
// none.
func nodeEvent(st agentapi.LeaseStatus, nodes int) (lifecycle.NodeEvent, lifecycle.Reason, string) {
	detail := clip(st.Detail, 500)
	switch st.State {
	case agentapi.NodePulling:
		return lifecycle.NodeReportsPulling, lifecycle.ReasonNone, ""
	case agentapi.NodeStarting:
		return lifecycle.NodeReportsStarting, lifecycle.ReasonNone, ""
	case agentapi.NodeJoining:
		return lifecycle.NodeReportsJoining, lifecycle.ReasonNone, ""
	case agentapi.NodeReady:
		switch {
		case st.Started:
			return lifecycle.NodeReportsReady, lifecycle.ReasonNone, ""
		case st.Preflight != nil && !st.Preflight.OK:
			return lifecycle.NodeReportsFailed, lifecycle.ReasonPreflightFailed, clip(st.Preflight.Detail, 500)
		case !st.AtBarrier || (nodes > 1 && st.Preflight == nil):
			return lifecycle.NodeReportsJoining, lifecycle.ReasonNone, "" // ready means measured and at the barrier
		}
		return lifecycle.NodeReportsReady, lifecycle.ReasonNone, ""
	case agentapi.NodeFailed:
		return lifecycle.NodeReportsFailed, lifecycle.KnownReason(st.Reason), detail
	case agentapi.NodeStopped:
		switch {
		case st.ExitCode != nil && (st.Reason == "" || st.Reason == agentapi.ReasonExited):
			return lifecycle.NodeReportsExited, lifecycle.ReasonExited, detail
		case obeyed(st.Reason):
			return lifecycle.NodeReportsStopped, lifecycle.Reason(st.Reason), detail
		}
		return lifecycle.NodeReportsFailed, lifecycle.KnownReason(st.Reason), detail
	}
	return "", lifecycle.ReasonNone, ""
}

// knownPaths are the well-formed ones of the paths that a host reports.
func knownPaths(in []agentapi.PeerPath, nodes int) []agentapi.PeerPath {
	out := []agentapi.PeerPath{}
	for _, p := range in {
		known := p.Path == "lan" || p.Path == "direct" || p.Path == "punched" || p.Path == "relay"
		if known && p.Rank >= 0 && p.Rank < nodes && p.MTU >= 0 && p.MTU < 1<<16 && len(out) < nodes {
			out = append(out, p)
		}
	}
	return out
}

// ranks are well-formed rank numbers, sorted.
func ranks(in []int) []int32 {
	out := []int32{}
	for _, r := range in {
		if r >= 0 && r < 1<<16 {
			out = append(out, int32(r))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
