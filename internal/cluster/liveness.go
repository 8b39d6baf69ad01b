package cluster

import (
	"fmt"
	"slices"
	"time"
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
		if n.ended != nil || n.ExitCode != nil {
			continue
		}
		if n.StartedAt == nil {
			if heard := latest(n.status.ReportedAt, n.Since); x.now.Sub(heard) > x.c.cfg.StartSilence && NodeState(n.State) != NodeReady {
				x.step(n, NodeSilent, ReasonHostLost, fmt.Sprintf("nothing was heard of its host for %s", x.now.Sub(heard).Round(time.Second)))
			}
			continue
		}
		if why := x.unproven(n); why != "" {
			x.step(n, NodeSilent, ReasonHostLost, why)
		} else if NodeState(n.State) == NodeLost {
			x.step(n, NodeHeard, ReasonNone, "")
		}
	}
}

// unproven says why a started node is not proven up, or "".
func (x *change) unproven(n *node) string {
	good := latest(time.UnixMilli(n.status.LastGoodMs), *n.StartedAt)
	if silent := x.now.Sub(good); silent > x.c.cfg.LostAfter {
		return fmt.Sprintf("no good report for %s", silent.Round(time.Second))
	}
	if !n.status.Good && n.status.Epoch == n.Epoch && n.status.ReportedAt.After(*n.StartedAt) {
		return "its host reports that it is not well"
	}
	for _, m := range x.nodes {
		// Only who is itself heard of may speak of others.
		if m != n && m.ended == nil && m.StartedAt != nil && m.status.Epoch == m.Epoch && slices.Contains(m.status.PeersDown, n.Rank) &&
			x.now.Sub(m.status.ReportedAt) <= x.c.cfg.LostAfter {
			return fmt.Sprintf("rank %d hears nothing from it over the cluster's network", m.Rank)
		}
	}
	return ""
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
