package cluster

import (
	"slices"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/db/dbq"
)

// Pure readings of what a host says of a lease.

// leaseReport is one lease of a host and what the present report says of it.
type leaseReport struct {
	row  dbq.HostLeasesRow
	now  *agentapi.LeaseStatus // of the lease's current epoch; nil when it is not in the report
	kept []int32               // epochs whose log waits on the host
	gone bool                  // nothing is left, said in knowledge of the lease's end
	at   time.Time             // the report's moment on PostgreSQL's clock
	from time.Time             // when the command began, on the same clock; by no more than ahead after at
	exit time.Time             // when it ended; not after at
	good time.Time             // since when it has been well without interruption; zero: not told
	// down are the ranks that it does not hear, in ascending order, and downFrom since when, unix ms.
	down     []int32
	downFrom []int64
}

// read sorts out what a report says of one lease. A report that is older than the last one says nothing.
func read(row dbq.HostLeasesRow, s agentapi.Sync, clock dbq.ReportClockRow, at time.Time) (h leaseReport, late bool) {
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
	h.gone = row.LeaseGoneAt == nil && informed && !listed && (s.Full || saidGone)
	return h, false
}

// silentPeers are the ranks that a report says are not heard, in ascending order, and since when, unix ms: since the
// last byte by the host's word, but by no more than it takes to notice before the first report that says so.
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
		case i >= 0 && st.Epoch == row.LeaseEpoch && st.PeersSinceMs != nil: // written by a server of before
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

// noticedLate is how long before a report that says so a silence may have begun.
const noticedLate = fairness.PeerSilence + fairness.ClockSlack

// ahead is by how much a host's clock may be ahead of ours: its anchor is late by as long as the message was under way
// that brought it, and a report that was quicker tells of a start that has yet to come. The window opens there all the
// same: that is where the segments begin.
const ahead = 2 * time.Second

// moment is when something happened that a report of the moment at tells by its boot's clock, through the anchor that
// its segments are told by too, but not after limit; at, when it does not tell.
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

// goodMS is the moment through which this report proves the node well, 0 when it proves nothing.
func (h leaseReport) goodMS(boot string) int64 {
	good := false
	switch {
	case h.row.LeaseEndedAt == nil:
		good = h.now != nil && h.now.Started && h.now.Good
	case h.row.StopAt != nil && h.now != nil:
		// We asked it to stop and it did: it was up until then.
		good = h.now.Good || obeyed(h.now.Reason)
	case h.row.StopAt != nil:
		good = h.gone && h.row.NodeStatus.BootID == boot
	}
	if !good {
		return 0
	}
	return h.at.UnixMilli()
}

func obeyed(reason string) bool {
	switch Reason(reason) {
	case ReasonNone, ReasonExited, ReasonRunUntil, ReasonSuperseded:
		return true
	}
	return false
}

// unwell reports whether a status says that something is wrong with a node that has started. One that has ended as it
// should is not well any more either, but nothing is wrong: it must not pass for lost while its end is being heard.
func unwell(st agentapi.LeaseStatus) bool {
	ended := st.ExitCode != nil || ((st.State == agentapi.NodeStopping || st.State == agentapi.NodeStopped) &&
		obeyed(st.Reason))
	return !st.Good && !ended
}

// troubleOf is what a host says is wrong with a node that is not well, one of the reasons that are a host's fault.
func troubleOf(st agentapi.LeaseStatus) (Reason, string) {
	r := Reason(st.Trouble)
	if !unwell(st) || !slices.Contains(hostFaults, r) {
		return ReasonNone, ""
	}
	return r, clip(st.TroubleDetail, 500)
}

// differs reports whether a host tells of other trouble than before.
func differs(now agentapi.LeaseStatus, before dbq.NodeStatus) bool {
	r, _ := troubleOf(now)
	return string(r) != before.Trouble
}

// matters reports whether the report changes anything that is decided under the cluster's lock. Most do not: they only
// say that all is still well.
func (h leaseReport) matters(goodMS int64) bool {
	n, st := h.row.Node, h.row.NodeStatus
	switch {
	case h.row.LeaseGoneAt != nil:
		return false
	case h.gone:
		return true
	case h.row.Node.LeaseID != h.row.LeaseID:
		return false
	case h.row.LeaseEndedAt != nil:
		stop := h.row.StopAt
		return stop != nil && st.LastGoodMs < stop.UnixMilli() && goodMS >= stop.UnixMilli()
	case h.now == nil:
		return false
	}
	e, _, _ := nodeEvent(*h.now, int(h.row.NodeCount))
	_, moves := NextNode(NodeState(n.State), e)
	return moves || h.row.InDoubt ||
		(h.now.WGKey != "" && (h.now.WGKey != n.WgKey || !slices.Equal(h.now.Endpoints, n.Endpoints))) ||
		(h.now.StartsAgain && h.now.WGKey == "" && n.WgKey != "") ||
		(h.now.Preflight != nil && len(n.Preflight) <= len("{}")) ||
		(h.now.Started && n.StartedAt == nil) ||
		(h.now.ExitCode != nil && n.ExitCode == nil) ||
		(h.now.OwnerMB > 0 && !n.OwnerUseTold) ||
		newlyCapped(h.row.CappedUntil, n.CapTold, h.at) ||
		(n.StartedAt != nil && (unwell(*h.now) == st.Good || differs(*h.now, st) || !slices.Equal(h.down, st.PeersDown))) ||
		(NodeState(n.State) == NodeLost && goodMS > 0)
}

// nodeEvent is what a status means to the node's table, with reason and detail. A status that says nothing new has no
// event.
func nodeEvent(st agentapi.LeaseStatus, nodes int) (NodeEvent, Reason, string) {
	detail := clip(st.Detail, 500)
	switch st.State {
	case agentapi.NodePulling:
		return NodeReportsPulling, ReasonNone, ""
	case agentapi.NodeStarting:
		return NodeReportsStarting, ReasonNone, ""
	case agentapi.NodeJoining:
		return NodeReportsJoining, ReasonNone, ""
	case agentapi.NodeReady:
		switch {
		case st.Started:
			return NodeReportsReady, ReasonNone, ""
		case st.Preflight != nil && !st.Preflight.OK:
			return NodeReportsFailed, ReasonPreflightFailed, clip(st.Preflight.Detail, 500)
		case !st.AtBarrier || (nodes > 1 && st.Preflight == nil):
			return NodeReportsJoining, ReasonNone, "" // ready means measured and at the barrier
		}
		return NodeReportsReady, ReasonNone, ""
	case agentapi.NodeFailed:
		return NodeReportsFailed, known(st.Reason), detail
	case agentapi.NodeStopped:
		switch {
		case st.ExitCode != nil && (st.Reason == "" || st.Reason == agentapi.ReasonExited):
			return NodeReportsExited, ReasonExited, detail
		case obeyed(st.Reason):
			return NodeReportsStopped, Reason(st.Reason), detail
		}
		return NodeReportsFailed, known(st.Reason), detail
	}
	return "", ReasonNone, ""
}

// knownPaths are the well-formed of what a host says of its paths.
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
