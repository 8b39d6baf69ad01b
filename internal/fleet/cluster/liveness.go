package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/notify"
)

// assess compares what hosts said last with the clock: nodes that are no longer proven up become lost, and lost ones
// that are come back. While a host's messages cannot arrive, nothing is concluded from its silence.
func (lf *life) assess() {
	switch lifecycle.State(lf.row.State) {
	case lifecycle.Provisioning, lifecycle.Running, lifecycle.Degraded:
	default:
		return
	}
	for _, n := range lf.members.nodes {
		if n.ended != nil || n.ExitCode != nil || lf.takenBack(n) {
			continue
		}
		if n.StartedAt == nil {
			if heard := latest(n.status.ReportedAt, n.Since); lf.members.silentFor(n, heard) > lf.cfg.StartSilence &&
				lifecycle.NodeState(n.State) != lifecycle.NodeReady {
				lf.step(n, lifecycle.NodeSilent, lifecycle.ReasonHostLost, fmt.Sprintf("its host has not reported for %s",
					lf.now.Sub(heard).Round(time.Second)))
			}
			continue
		}
		if r, why := lf.members.unproven(n); r == lifecycle.ReasonNone {
			if lifecycle.NodeState(n.State) == lifecycle.NodeLost {
				lf.step(n, lifecycle.NodeRecovered, lifecycle.ReasonNone, "")
			}
		} else if lf.members.deafNow(n) && lifecycle.NodeState(n.State) != lifecycle.NodeLost {
			continue
		} else if lf.step(n, lifecycle.NodeSilent, r, why) {
			lf.doubts.countDoubt(n)
		} else {
			lf.news.blame(n, r, why)
		}
	}
	lf.doubtGap()
	lf.doubts.dispute()
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
	for _, n := range x.members.nodes {
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
		sooner(deref(x.members.maxUntil()))
		x.placement.dueReplacing(sooner)
		for _, u := range x.doubts.disputed {
			sooner(time.UnixMilli(u.FromMs).Add(x.members.undGrace() + time.Millisecond))
		}
		for _, n := range x.members.nodes {
			if lifecycle.NodeState(n.State) == lifecycle.NodeLost {
				sooner(n.Since.Add(x.cfg.LossGrace))
			} else if n.StartedAt != nil && n.ExitCode == nil {
				for _, r := range n.status.PeersDown {
					sooner(n.claimSince(r).Add(x.cfg.OneSided + time.Millisecond))
				}
				sooner(latest(time.UnixMilli(n.status.LastGoodMs), *n.StartedAt).Add(x.cfg.LostAfter + time.Millisecond))
			}
		}
	case x.billing.window || !x.members.allGone() || len(x.reports.lost) > 0:
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

// takenBack ends a node whose host its operator takes back, once the time has come; before, it notifies the renter,
// once for each time that is set. It reports whether the node has ended.
func (lf *life) takenBack(n *node) bool {
	told := deref(n.ReclaimTold)
	switch {
	case n.back.at.IsZero() && told.IsZero():
	case n.back.at.IsZero():
		n.ReclaimTold, n.dirty = nil, true
		lf.news.notifyReclaim(n, "Its host stays", "The operator of its host does not take the machine back after all.",
			notify.Info, told)
	case !lf.now.Before(n.back.at):
		r, detail := lifecycle.ReasonHostReclaimed, "its operator took the machine back at once"
		if n.back.noticed() {
			r = lifecycle.ReasonHostWithdrawn
		}
		if told.Equal(n.back.at) {
			detail = fmt.Sprintf("its operator took the machine back, as was said at %s UTC",
				n.back.requestedAt.UTC().Format("2006-01-02 15:04:05"))
		}
		if lf.step(n, lifecycle.NodeTakenBack, r, detail) {
			return true
		}
		return lifecycle.NodeState(n.State) == lifecycle.NodeFailed
	case !told.Equal(n.back.at):
		at := n.back.at
		n.ReclaimTold, n.dirty = &at, true
		body := fmt.Sprintf("The operator of its host takes the machine back at %s UTC: save what you need before. %s",
			at.UTC().Format("2006-01-02 15:04:05"), lf.news.withoutIt())
		lf.news.notifyReclaim(n, "Its host is taken back at "+at.UTC().Format("15:04:05")+" UTC", body, notify.Warn, at)
	}
	return false
}

// doubtGap leaves to judge a gap that was over before a server looked, as if one had: what is billed does not
// depend on when the watchdog comes.
func (lf *life) doubtGap() {
	if !lf.billing.sure() || lf.billing.firstGap().IsZero() {
		return
	}
	if f := lf.facts(); slices.ContainsFunc(f.Required(), func(n lifecycle.NodeFacts) bool { return n.IsDown(f) }) {
		return // the loss is about to be noticed: its doubt begins with the gap
	}
	lf.billing.doubt()
	lf.billing.gaps = nil
	lf.billing.resume()
}
