package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
)

// members are the nodes of a locked cluster, and what their reports and the hearing of the control plane say of them.
type members struct {
	cfg *Config
	now time.Time
	row *dbq.Cluster

	nodes   []*node
	hearing host.Reception // when the control plane could not receive from hosts
}

// deaf returns the time in which the control plane could not receive from a node's host.
func (ms *members) deaf(n *node) interval.Set { return ms.hearing.Deaf(n.listener, n.connected) }

// deafNow reports whether the control plane cannot receive from a node's host at this moment, or the host has not had
// time to come back.
func (ms *members) deafNow(n *node) bool { return ms.deaf(n).Contains(ms.now.UnixMilli()) }

// silentFor returns for how long since a moment the control plane could have received from a node's host.
func (ms *members) silentFor(n *node, since time.Time) time.Duration {
	past := interval.Span{Start: since.UnixMilli(), End: ms.now.UnixMilli()}
	return ms.now.Sub(since) - time.Duration(ms.deaf(n).Clip(past).Len())*time.Millisecond
}

// disputes returns the pairs of ranks that have lost contact although the hosts of both report and find them well:
// if both claim it, or if one has claimed it for OneSided and no well rank of a third operator receives from the
// accused rank.
func (ms *members) disputes() []pair {
	var out []pair
	claims := func(n, m *node) bool { return slices.Contains(n.status.PeersDown, m.Rank) }
	well := func(n *node) bool {
		return n.required && n.ExitCode == nil && ms.reportedLately(n) && n.status.Good &&
			lifecycle.NodeState(n.State) == lifecycle.NodeReady &&
			!ms.deafNow(n)
	}
	for i, n := range ms.nodes {
		for _, m := range ms.nodes[i+1:] {
			if !well(n) || !well(m) {
				continue
			}
			switch by, on := claims(n, m), claims(m, n); {
			case by && on, by && ms.claimsAlone(n, m), on && ms.claimsAlone(m, n):
				out = append(out, pair{n.Rank, m.Rank})
			}
		}
	}
	return out
}

// claimsAlone reports whether n has claimed for long enough to receive nothing from m, and no rank of a third operator
// receives from m.
func (ms *members) claimsAlone(n, m *node) bool {
	if since := n.claimSince(m.Rank); since.IsZero() || ms.now.Sub(since) < ms.cfg.OneSided {
		return false
	}
	for _, o := range ms.nodes {
		if o.operator != n.operator && o.operator != m.operator && ms.reportedLately(o) && o.status.Good &&
			!slices.Contains(o.status.PeersDown, m.Rank) {
			return false
		}
	}
	return true
}

// undGrace returns how long an undecided suspension may last.
func (ms *members) undGrace() time.Duration {
	if ms.now.Sub(ms.lastStart()) < ms.cfg.Young {
		return ms.cfg.UndYoung
	}
	return ms.cfg.UndGrace
}

// unproven says why a started node is not proven up: which of its parts is dead, and how that is known. ReasonNone: it
// is proven. Only the node's own host decides: what other ranks say of it may explain its silence, and no more.
func (ms *members) unproven(n *node) (lifecycle.Reason, string) {
	good := latest(time.UnixMilli(n.status.LastGoodMs), *n.StartedAt)
	said := n.status.Epoch == n.Epoch && n.status.ReportedAt.After(*n.StartedAt)
	last := latest(n.status.ReportedAt, *n.StartedAt)
	silent := ms.now.Sub(last)
	switch {
	case ms.silentFor(n, last) > ms.cfg.LostAfter:
		if m := ms.peerThatReceives(n); m != nil {
			return lifecycle.ReasonAgentLost, fmt.Sprintf("its agent has not reported for %s; rank %d still reaches the node "+
				"over the "+
				"cluster's network", silent.Round(time.Second), m.Rank)
		}
		why := fmt.Sprintf("no report for %s", silent.Round(time.Second))
		for _, m := range ms.nodes {
			if m != n && ms.reportedLately(m) && slices.Contains(m.status.PeersDown, n.Rank) {
				why += fmt.Sprintf(", and rank %d receives nothing from it over the cluster's network", m.Rank)
				break
			}
		}
		return lifecycle.ReasonHostLost, why
	case said && !n.status.Good && n.status.Trouble != "":
		return lifecycle.Reason(n.status.Trouble), n.status.TroubleDetail
	case said && !n.status.Good:
		return lifecycle.ReasonHostLost, "its host reports that it is not well"
	case ms.silentFor(n, good) > ms.cfg.LostAfter:
		return lifecycle.ReasonHostLost, fmt.Sprintf("no good report for %s", ms.now.Sub(good).Round(time.Second))
	}
	return lifecycle.ReasonNone, ""
}

// peerThatReceives finds a rank that receives from n over the cluster's network; nil: none does, as far as we know.
func (ms *members) peerThatReceives(n *node) *node {
	for _, m := range ms.nodes {
		if m != n && ms.reportedLately(m) && m.status.Good && !slices.Contains(m.status.PeersDown, n.Rank) {
			return m
		}
	}
	return nil
}

// reportedLately reports whether a rank that runs has reported lately.
func (ms *members) reportedLately(m *node) bool {
	return m.ended == nil && m.StartedAt != nil && m.status.Epoch == m.Epoch &&
		ms.now.Sub(m.status.ReportedAt) <= ms.cfg.LostAfter
}

// maxUntil returns the end that max_duration sets, once the cluster has run.
func (ms *members) maxUntil() *time.Time {
	if ms.row.RunningAt == nil {
		return nil
	}
	return notAfter(ms.now, ms.row.RunningAt, ms.row.MaxDurationS)
}

// living reports whether the cluster has a lease that has not ended.
func (ms *members) living() bool {
	return slices.ContainsFunc(ms.nodes, func(n *node) bool { return n.ended == nil })
}

func (ms *members) allGone() bool {
	return !slices.ContainsFunc(ms.nodes, func(n *node) bool { return n.gone == nil })
}

// ended returns the required ranks whose leases have ended.
func (ms *members) ended() (ranks []int) {
	for _, n := range ms.nodes {
		if n.required && n.ended != nil {
			ranks = append(ranks, int(n.Rank))
		}
	}
	return ranks
}

// known is what the change knows of a node.
func (ms *members) known(n *node) knownNode {
	return knownNode{Node: n.Node, nodes: len(ms.nodes), goAt: ms.row.GoAt, imageDigest: ms.row.ImageDigest,
		cappedUntil: n.capped}
}

// failedStart returns the operator to blame for a start that failed: its host reported a failure of its own, fell
// silent, or did not start its rank with the others. Zero: none is proven to be.
func (ms *members) failedStart(r lifecycle.Reason) id.Org {
	for _, n := range ms.nodes {
		s := lifecycle.NodeState(n.State)
		switch {
		case !n.required || ms.deafNow(n):
		case hostsOwn(r) && (s == lifecycle.NodeFailed || s == lifecycle.NodeLost) &&
			lifecycle.Reason(n.Reason).OfCluster() == r,
			r == lifecycle.ReasonTimeout && ms.row.GoAt != nil && n.StartedAt == nil:
			return n.operator
		}
	}
	return id.Org{}
}

// gpusOf counts the cluster's GPUs on an operator's hosts.
func (ms *members) gpusOf(operator id.Org) (n int64) {
	for _, m := range ms.nodes {
		if m.operator == operator {
			n += int64(len(m.gpus))
		}
	}
	return n
}

// firstFailure is when the first exit with an error was reported.
func (ms *members) firstFailure() time.Time {
	t := ms.now
	for _, n := range ms.nodes {
		if n.ExitCode != nil && *n.ExitCode != 0 && n.ExitAt.Before(t) {
			t = *n.ExitAt
		}
	}
	return t
}

// lastStart is when the last required rank started, by its host's proof: a moment ahead, where that host's clock is
// (see report.go).
func (ms *members) lastStart() time.Time {
	var t time.Time
	for _, n := range ms.nodes {
		if n.required && n.StartedAt != nil {
			t = latest(t, *n.StartedAt)
		}
	}
	if t.IsZero() {
		return ms.now
	}
	return t
}

// lastExit is when the last rank ended: what hosts and servers take to learn of it, or an outage between, costs no one
// anything.
func (ms *members) lastExit() time.Time {
	var t time.Time
	for _, n := range ms.nodes {
		if n.required && n.ExitAt != nil {
			t = latest(t, *n.ExitAt)
		}
	}
	if t.IsZero() || t.After(ms.now) {
		return ms.now
	}
	return t
}

// byLease finds a node by its lease; nil when the lease is not the node's present one.
func (ms *members) byLease(l id.Lease) *node {
	for _, n := range ms.nodes {
		if n.LeaseID == l {
			return n
		}
	}
	return nil
}
