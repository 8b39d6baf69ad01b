package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
)

// assess compares what hosts said last with the clock: nodes that are no longer proven up become lost, and lost ones
// that are come back. While a host's messages cannot arrive, nothing is concluded from its silence.
func (x *lockedCluster) assess() {
	switch lifecycle.State(x.row.State) {
	case lifecycle.Provisioning, lifecycle.Running, lifecycle.Degraded:
	default:
		return
	}
	for _, n := range x.nodes {
		if n.ended != nil || n.ExitCode != nil || x.takenBack(n) {
			continue
		}
		if n.StartedAt == nil {
			if heard := latest(n.status.ReportedAt, n.Since); x.silentFor(n, heard) > x.cfg.StartSilence &&
				lifecycle.NodeState(n.State) != lifecycle.NodeReady {
				x.step(n, lifecycle.NodeSilent, lifecycle.ReasonHostLost, fmt.Sprintf("its host has not reported for %s",
					x.now.Sub(heard).Round(time.Second)))
			}
			continue
		}
		if r, why := x.unproven(n); r == lifecycle.ReasonNone {
			if lifecycle.NodeState(n.State) == lifecycle.NodeLost {
				x.step(n, lifecycle.NodeRecovered, lifecycle.ReasonNone, "")
			}
		} else if x.deafNow(n) && lifecycle.NodeState(n.State) != lifecycle.NodeLost {
			continue
		} else if x.step(n, lifecycle.NodeSilent, r, why) {
			x.countDoubt(n)
		} else {
			x.blame(n, r, why)
		}
	}
	x.doubtGap()
	x.dispute()
}

// unproven says why a started node is not proven up: which of its parts is dead, and how that is known. ReasonNone: it
// is proven. Only the node's own host decides: what other ranks say of it may explain its silence, and no more.
func (x *lockedCluster) unproven(n *node) (lifecycle.Reason, string) {
	good := latest(time.UnixMilli(n.status.LastGoodMs), *n.StartedAt)
	said := n.status.Epoch == n.Epoch && n.status.ReportedAt.After(*n.StartedAt)
	last := latest(n.status.ReportedAt, *n.StartedAt)
	silent := x.now.Sub(last)
	switch {
	case x.silentFor(n, last) > x.cfg.LostAfter:
		if m := x.peerThatReceives(n); m != nil {
			return lifecycle.ReasonAgentLost, fmt.Sprintf("its agent has not reported for %s; rank %d still reaches the node "+
				"over the "+
				"cluster's network", silent.Round(time.Second), m.Rank)
		}
		why := fmt.Sprintf("no report for %s", silent.Round(time.Second))
		for _, m := range x.nodes {
			if m != n && x.reportedLately(m) && slices.Contains(m.status.PeersDown, n.Rank) {
				why += fmt.Sprintf(", and rank %d receives nothing from it over the cluster's network", m.Rank)
				break
			}
		}
		return lifecycle.ReasonHostLost, why
	case said && !n.status.Good && n.status.Trouble != "":
		return lifecycle.Reason(n.status.Trouble), n.status.TroubleDetail
	case said && !n.status.Good:
		return lifecycle.ReasonHostLost, "its host reports that it is not well"
	case x.silentFor(n, good) > x.cfg.LostAfter:
		return lifecycle.ReasonHostLost, fmt.Sprintf("no good report for %s", x.now.Sub(good).Round(time.Second))
	}
	return lifecycle.ReasonNone, ""
}

// peerThatReceives finds a rank that receives from n over the cluster's network; nil: none does, as far as we know.
func (x *lockedCluster) peerThatReceives(n *node) *node {
	for _, m := range x.nodes {
		if m != n && x.reportedLately(m) && m.status.Good && !slices.Contains(m.status.PeersDown, n.Rank) {
			return m
		}
	}
	return nil
}

// reportedLately reports whether a rank that runs has reported lately.
func (x *lockedCluster) reportedLately(m *node) bool {
	return m.ended == nil && m.StartedAt != nil && m.status.Epoch == m.Epoch &&
		x.now.Sub(m.status.ReportedAt) <= x.cfg.LostAfter
}

// blame says of a node that is lost already what is known better by now.
func (x *lockedCluster) blame(n *node, r lifecycle.Reason, why string) {
	if lifecycle.NodeState(n.State) != lifecycle.NodeLost || n.Reason == string(r) {
		return
	}
	n.Reason, n.Detail, n.dirty = string(r), why, true
	rank := n.Rank
	x.events = append(x.events, dbq.InsertClusterEventParams{
		ClusterID: x.row.ID,
		At:        x.now,
		Kind:      "node_lost",
		Rank:      &rank,
		Title:     fmt.Sprintf("Rank %d: what is wrong with it", rank),
		Detail:    join(r.Happened(), why),
		Data:      []byte("{}"),
	})
	if lifecycle.State(x.row.State) == lifecycle.Degraded && x.row.ReplaceUntil == nil {
		x.row.Reason, x.row.Detail = string(r), join(r.Happened(), fmt.Sprintf("rank %d: %s", n.Rank, why))
	}
}

// How often the watchdog looks at a cluster at least.
const (
	lookStarting = 10 * time.Second
	lookRunning  = 30 * time.Second // what must be seen sooner has a time of its own
	lookReleased = 5 * time.Second
	lookUnbilled = time.Minute
)

// due is when the watchdog must look next, nil when never: everything has ended and is settled.
func (x *lockedCluster) due() *time.Time {
	var t time.Time
	sooner := func(u time.Time) {
		if !u.IsZero() && u.After(x.now) && (t.IsZero() || u.Before(t)) {
			t = u
		}
	}
	for _, n := range x.nodes {
		if n.ended == nil {
			sooner(n.back.at)
		}
	}
	switch s := lifecycle.State(x.row.State); {
	case s == lifecycle.Provisioning:
		sooner(x.now.Add(lookStarting))
		sooner(deref(x.row.StartDeadline))
	case !s.Ended():
		sooner(x.now.Add(lookRunning))
		sooner(deref(x.row.RunUntil))
		sooner(deref(x.maxUntil()))
		x.dueReplacing(sooner)
		for _, u := range x.disputed {
			sooner(time.UnixMilli(u.FromMs).Add(x.undGrace() + time.Millisecond))
		}
		for _, n := range x.nodes {
			if lifecycle.NodeState(n.State) == lifecycle.NodeLost {
				sooner(n.Since.Add(x.cfg.LossGrace))
			} else if n.StartedAt != nil && n.ExitCode == nil {
				for _, r := range n.status.PeersDown {
					sooner(n.claimSince(r).Add(x.cfg.OneSided + time.Millisecond))
				}
				sooner(latest(time.UnixMilli(n.status.LastGoodMs), *n.StartedAt).Add(x.cfg.LostAfter + time.Millisecond))
			}
		}
	case x.window || !x.allGone() || len(x.lost) > 0:
		sooner(x.now.Add(lookReleased))
	case x.row.SettledAt == nil:
		sooner(x.now.Add(lookUnbilled))
	}
	if t.IsZero() {
		return nil
	}
	return &t
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
