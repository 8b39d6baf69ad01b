package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/db/dbq"
)

// assess compares what hosts said last with the clock: nodes that are no longer proven up become lost, and lost ones
// that are come back.
func (x *change) assess() {
	switch State(x.row.State) {
	case Provisioning, Running, Degraded:
	default:
		return
	}
	for _, n := range x.nodes {
		if n.ended != nil || n.ExitCode != nil || x.takenBack(n) {
			continue
		}
		if n.StartedAt == nil {
			if heard := latest(n.status.ReportedAt, n.Since); x.now.Sub(heard) > x.c.cfg.StartSilence && NodeState(n.State) != NodeReady {
				x.step(n, NodeSilent, ReasonHostLost, fmt.Sprintf("nothing was heard of its host for %s", x.now.Sub(heard).Round(time.Second)))
			}
			continue
		}
		if r, why := x.unproven(n); r == ReasonNone {
			if NodeState(n.State) == NodeLost {
				x.step(n, NodeHeard, ReasonNone, "")
			}
		} else if !x.step(n, NodeSilent, r, why) {
			x.blame(n, r, why)
		}
	}
}

// unproven says why a started node is not proven up: which of its parts is dead, and how that is known. ReasonNone: it is
// proven.
func (x *change) unproven(n *node) (Reason, string) {
	good := latest(time.UnixMilli(n.status.LastGoodMs), *n.StartedAt)
	said := n.status.Epoch == n.Epoch && n.status.ReportedAt.After(*n.StartedAt)
	deaf, hears := x.heardByOthers(n)
	silent := x.now.Sub(latest(n.status.ReportedAt, *n.StartedAt))
	switch {
	case silent > x.c.cfg.LostAfter && hears != nil && deaf == "":
		return ReasonAgentLost, fmt.Sprintf("nothing was heard of its agent for %s; rank %d hears the node over the cluster's network", silent.Round(time.Second), hears.Rank)
	case silent > x.c.cfg.LostAfter:
		why := fmt.Sprintf("no report for %s", silent.Round(time.Second))
		if deaf != "" {
			why += ", and " + deaf
		}
		return ReasonHostLost, why
	case said && !n.status.Good && n.status.Trouble != "":
		return Reason(n.status.Trouble), n.status.TroubleDetail
	case said && !n.status.Good:
		return ReasonHostLost, "its host reports that it is not well"
	case deaf != "" && NodeState(n.State) == NodeLost && n.status.ReportedAt.After(n.Since):
		return ReasonOverlayFailed, "its host answers, but " + deaf
	case deaf != "": // its host was not heard of since: it may be dead as a whole
		return ReasonHostLost, deaf
	case x.now.Sub(good) > x.c.cfg.LostAfter:
		return ReasonHostLost, fmt.Sprintf("no good report for %s", x.now.Sub(good).Round(time.Second))
	}
	return ReasonNone, ""
}

// heardByOthers tells in words that n and another rank do not hear each other over the cluster's network, where n is to
// blame, and finds a rank that hears it. Only who is itself heard of may speak of others. Of two ranks it is the one that
// lacks more of them: where one host's line lets nothing through, it hears none of the others and none of them hears it,
// and they are well. Where both lack as many, it is the one that is not heard.
func (x *change) heardByOthers(n *node) (deaf string, hears *node) {
	for _, m := range x.nodes {
		if m == n || !x.speaks(m) {
			continue
		}
		more := x.lacks(n) - x.lacks(m)
		switch {
		case slices.Contains(m.status.PeersDown, n.Rank):
			if more >= 0 {
				deaf = fmt.Sprintf("rank %d hears nothing from it over the cluster's network", m.Rank)
			}
		case m.status.Good:
			hears = m
		}
		if deaf == "" && more > 0 && x.speaks(n) && slices.Contains(n.status.PeersDown, m.Rank) {
			deaf = fmt.Sprintf("it hears nothing from rank %d over the cluster's network", m.Rank)
		}
	}
	return deaf, hears
}

// speaks reports whether a rank that runs was heard of lately.
func (x *change) speaks(m *node) bool {
	return m.ended == nil && m.StartedAt != nil && m.status.Epoch == m.Epoch && x.now.Sub(m.status.ReportedAt) <= x.c.cfg.LostAfter
}

// lacks counts the ranks that n does not hear, or that do not hear n, as those say who speak.
func (x *change) lacks(n *node) (ranks int) {
	for _, m := range x.nodes {
		if m != n && (x.speaks(m) && slices.Contains(m.status.PeersDown, n.Rank) || x.speaks(n) && slices.Contains(n.status.PeersDown, m.Rank)) {
			ranks++
		}
	}
	return ranks
}

// blame says of a node that is lost already what is known better by now.
func (x *change) blame(n *node, r Reason, why string) {
	if NodeState(n.State) != NodeLost || n.Reason == string(r) {
		return
	}
	n.Reason, n.Detail, n.dirty = string(r), why, true
	rank := n.Rank
	x.said = append(x.said, dbq.InsertClusterEventParams{
		ClusterID: x.row.ID, At: x.now, Kind: "node_lost", Rank: &rank, Title: fmt.Sprintf("Rank %d: what is wrong with it", rank),
		Detail: join(r.Happened(), why), Data: []byte("{}"),
	})
	if State(x.row.State) == Degraded && x.row.ReplaceUntil == nil {
		x.row.Reason, x.row.Detail = string(r), join(r.Happened(), fmt.Sprintf("rank %d: %s", n.Rank, why))
	}
}

// How often the watchdog looks at a cluster at least.
const (
	lookStarting = 10 * time.Second
	lookRunning  = 10 * time.Second
	lookReleased = 5 * time.Second
	lookUnbilled = time.Minute
)

// due is when the watchdog must look next, nil when never: everything has ended and is settled.
func (x *change) due() *time.Time {
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
	switch s := State(x.row.State); {
	case s == Provisioning:
		sooner(x.now.Add(lookStarting))
		sooner(deref(x.row.StartDeadline))
	case !s.Ended():
		sooner(x.now.Add(lookRunning))
		sooner(deref(x.row.RunUntil))
		sooner(deref(x.maxUntil()))
		x.dueReplacing(sooner)
		for _, n := range x.nodes {
			if NodeState(n.State) == NodeLost {
				sooner(n.Since.Add(x.c.cfg.LossGrace))
			} else if n.StartedAt != nil && n.ExitCode == nil {
				sooner(latest(time.UnixMilli(n.status.LastGoodMs), *n.StartedAt).Add(x.c.cfg.LostAfter + time.Millisecond))
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
