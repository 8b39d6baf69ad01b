package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/notify"
)

// A rank is in doubt while it is not proven up. The billing window stays open meanwhile, but nothing more of it is
// confirmed, because proof may still arrive. judge.go decides what becomes of the time.

// deaf returns the time in which the control plane could not receive from a node's host.
func (x *lockedCluster) deaf(n *node) interval.Set { return x.hearing.Deaf(n.listener, n.connected) }

// deafNow reports whether the control plane cannot receive from a node's host at this moment, or the host has not had
// time to come back.
func (x *lockedCluster) deafNow(n *node) bool { return x.deaf(n).Contains(x.now.UnixMilli()) }

// silentFor returns for how long since a moment the control plane could have received from a node's host.
func (x *lockedCluster) silentFor(n *node, since time.Time) time.Duration {
	past := interval.Span{Start: since.UnixMilli(), End: x.now.UnixMilli()}
	return x.now.Sub(since) - time.Duration(x.deaf(n).Clip(past).Len())*time.Millisecond
}

// countDoubt counts a doubt against the host of a gang's rank. Doubts count per host and not per cluster, so that
// single failures of many hosts do not end a large cluster; see fairness.DoubtIsFinal.
func (x *lockedCluster) countDoubt(n *node) {
	if len(x.nodes) < 2 {
		return
	}
	n.doubts = append(n.doubts, x.now.UnixMilli())
	x.strike(n, nil, strikeDoubt)
}

// Kinds of strikes.
const (
	strikeDoubt     = "doubt"
	strikeStart     = "start"
	strikeLoss      = "loss"
	strikeUndecided = "undecided"
)

// strike records a strike against the host of a node. other is the opposite end of an undecided suspension, nil
// otherwise.
func (x *lockedCluster) strike(n, other *node, kind string) {
	s := dbq.InsertStrikeParams{HostID: n.HostID, ClusterID: x.row.ID, Kind: kind, At: x.now}
	if other != nil {
		s.AgainstOrg = id.UUIDs(other.operator)[0]
	}
	x.strikes = append(x.strikes, s)
	x.notifyStrike(n, other, kind)
}

// notifyStrike notifies the operator of a host of a strike in a cluster of several nodes, and of its consequences. It
// does not notify of doubts, which are many and temporary: the page of the bond lists them.
func (x *lockedCluster) notifyStrike(n, other *node, kind string) {
	t := notify.Notice{
		Org:      n.operator,
		Object:   n.HostID.String(),
		Severity: notify.Warn,
		Key:      fmt.Sprintf("strike:%s:%s:%s", kind, x.row.ID, n.LeaseID),
	}
	const three = " Three such failures or failed starts within 60 minutes keep a host out of clusters of several " +
		"nodes for an hour, then longer each time."
	switch {
	case kind == strikeLoss:
		t.Title = fmt.Sprintf("%s is not offered until %s UTC: it failed", n.hostName,
			x.now.Add(fairness.RelistLock).UTC().Format("15:04"))
		t.Body = fmt.Sprintf("Rank %d of cluster %s was lost by the host's fault.%s To stop renting out a host, take it "+
			"back with an hour's notice: then nothing counts against it.",
			n.Rank, x.row.ID, three)
	case kind == strikeStart:
		t.Title = fmt.Sprintf("%s started a node too late", n.hostName)
		t.Body = fmt.Sprintf("Rank %d of cluster %s started more than %.0f s after the first one, or not at all. Your "+
			"bond pays the others for that time.%s",
			n.Rank, x.row.ID, fairness.StartSkew.Seconds(), three)
	case kind == strikeUndecided && other != nil && other.operator != n.operator:
		t.Title = fmt.Sprintf("%s and a host of another operator lost contact", n.hostName)
		t.Body = fmt.Sprintf("Ranks %d and %d of cluster %s were both well and lost contact with each other. No one is to "+
			"blame and nothing is taken from you. Hosts of that operator and yours "+
			"are not put together for 24 hours. When that happens with three operators within 24 hours, a host is in no "+
			"cluster of several nodes for an hour, then longer each time.",
			min(n.Rank, other.Rank), max(n.Rank, other.Rank), x.row.ID)
	default:
		return
	}
	x.notices = append(x.notices, t)
}

// pair is two ranks, a < b.
type pair struct{ a, b int32 }

// disputes returns the pairs of ranks that have lost contact although the hosts of both report and find them well:
// if both claim it, or if one has claimed it for OneSided and no well rank of a third operator receives from the
// accused rank.
func (x *lockedCluster) disputes() []pair {
	var out []pair
	claims := func(n, m *node) bool { return slices.Contains(n.status.PeersDown, m.Rank) }
	well := func(n *node) bool {
		return n.required && n.ExitCode == nil && x.reportedLately(n) && n.status.Good &&
			lifecycle.NodeState(n.State) == lifecycle.NodeReady &&
			!x.deafNow(n)
	}
	for i, n := range x.nodes {
		for _, m := range x.nodes[i+1:] {
			if !well(n) || !well(m) {
				continue
			}
			switch by, on := claims(n, m), claims(m, n); {
			case by && on, by && x.claimsAlone(n, m), on && x.claimsAlone(m, n):
				out = append(out, pair{n.Rank, m.Rank})
			}
		}
	}
	return out
}

// claimSince returns since when the node's host has claimed without interruption to receive nothing from a rank; zero:
// it does not.
func (n *node) claimSince(rank int32) time.Time {
	i := slices.Index(n.status.PeersDown, rank)
	switch {
	case i >= 0 && len(n.status.PeersFromMs) == len(n.status.PeersDown):
		return time.UnixMilli(n.status.PeersFromMs[i])
	case i >= 0 && n.status.PeersSinceMs != nil: // written by a server of before
		return time.UnixMilli(*n.status.PeersSinceMs)
	}
	return time.Time{}
}

// claimsAlone reports whether n has claimed for long enough to receive nothing from m, and no rank of a third operator
// receives from m.
func (x *lockedCluster) claimsAlone(n, m *node) bool {
	if since := n.claimSince(m.Rank); since.IsZero() || x.now.Sub(since) < x.cfg.OneSided {
		return false
	}
	for _, o := range x.nodes {
		if o.operator != n.operator && o.operator != m.operator && x.reportedLately(o) && o.status.Good &&
			!slices.Contains(o.status.PeersDown, m.Rank) {
			return false
		}
	}
	return true
}

// dispute updates the record of the cluster's undecided suspensions from the claims of ranks. A suspension begins now
// and never in the past, so that a claim cannot cost any host what it has earned.
func (x *lockedCluster) dispute() {
	var now []pair
	if s := lifecycle.State(x.row.State); s == lifecycle.Running || s == lifecycle.Degraded {
		now = x.disputes()
	}
	var open []dbq.OpenUndecidedRow
	for _, u := range x.disputed {
		if u.Epoch == x.row.Epoch && slices.Contains(now, pair{u.Low, u.High}) {
			open = append(open, u)
			continue
		}
		x.undecided = append(x.undecided, undecided{u, x.now.UnixMilli()})
	}
	for _, p := range now {
		if !slices.ContainsFunc(open, func(u dbq.OpenUndecidedRow) bool { return p == pair{u.Low, u.High} }) {
			u := dbq.OpenUndecidedRow{Epoch: x.row.Epoch, Low: p.a, High: p.b, FromMs: x.now.UnixMilli()}
			open = append(open, u)
			x.undecided = append(x.undecided, undecided{u, 0})
		}
	}
	x.disputed = open
}

// undecided is a suspension to be written: it begins, or ends at endMS.
type undecided struct {
	dbq.OpenUndecidedRow
	endMS int64 // 0: it begins
}

// undGrace returns how long an undecided suspension may last.
func (x *lockedCluster) undGrace() time.Duration {
	if x.now.Sub(x.lastStart()) < x.cfg.Young {
		return x.cfg.UndYoung
	}
	return x.cfg.UndGrace
}

// disputeFacts returns what Next needs to know of undecided suspensions.
func (x *lockedCluster) disputeFacts() (d lifecycle.Dispute) {
	for _, u := range x.disputed {
		since := time.UnixMilli(u.FromMs)
		if d.Since.IsZero() || since.Before(d.Since) {
			d.Since = since
		}
		d.Pairs = append(d.Pairs, [2]int{int(u.Low), int(u.High)})
	}
	d.Grace = x.undGrace()
	return d
}

// doubtSentence returns a text for the renter: since when nothing is billed, which ranks do not respond, and what
// follows.
func (x *lockedCluster) doubtSentence(d lifecycle.Decision) string {
	since := x.confirmed()
	if !x.doubtFrom.IsZero() {
		since = x.doubtFrom
	}
	s := "Not billed since " + since.UTC().Format("15:04:05") + " UTC"
	if len(d.Ranks) == 2 && d.Reason == lifecycle.ReasonPeersUnreachable {
		return s + fmt.Sprintf(": ranks %d and %d have lost contact with each other.", d.Ranks[0], d.Ranks[1])
	}
	if len(d.Ranks) > 0 {
		n := x.nodes[d.Ranks[0]]
		s += fmt.Sprintf(": rank %d (host %s) is not proven up", n.Rank, n.hostName)
	}
	return s + ", unless it proves later that nothing was missed."
}

// ban is a row of pair_ban.
type ban struct {
	A, B  pgtype.UUID
	Until time.Time
}

// countEnd counts a final loss against its host. After an undecided end, for which no host is to blame, the hosts at
// both ends get a strike, and for a day the renter is not placed on these hosts and the two operators are not placed
// together.
func (x *lockedCluster) countEnd(d lifecycle.Decision) {
	if d.On != lifecycle.OnLossFinal && d.On != lifecycle.OnRankIgnored && d.On != lifecycle.OnReplacing {
		return
	}
	if d.Reason != lifecycle.ReasonPeersUnreachable {
		for _, n := range x.culprits(d) {
			if lifecycle.Reason(n.Reason) != lifecycle.ReasonHostWithdrawn { // its operator gave notice in time
				x.strike(n, nil, strikeLoss)
			}
		}
		return
	}
	until := x.now.Add(fairness.PairBan)
	for _, u := range x.disputed {
		n, m := x.nodes[u.Low], x.nodes[u.High]
		x.strike(n, m, strikeUndecided)
		x.strike(m, n, strikeUndecided)
		a, b := n.operator, m.operator
		if b.Compare(a) < 0 {
			a, b = b, a
		}
		x.bans = append(x.bans,
			ban{A: id.UUIDs(x.row.OrgID)[0], B: id.UUIDs(n.HostID)[0], Until: until},
			ban{A: id.UUIDs(x.row.OrgID)[0], B: id.UUIDs(m.HostID)[0], Until: until})
		if a != b {
			x.bans = append(x.bans, ban{A: id.UUIDs(a)[0], B: id.UUIDs(b)[0], Until: until})
		}
	}
}

// creditLost returns to the renter what the nodes cost that are lost for good by their hosts' fault. It is called
// before the transition that ends or leaves these nodes, and books after the window is closed.
func (x *lockedCluster) creditLost(d lifecycle.Decision) {
	switch d.On {
	case lifecycle.OnLossFinal, lifecycle.OnRankIgnored, lifecycle.OnReplacing:
	default:
		return
	}
	for _, n := range x.culprits(d) {
		r := lifecycle.Reason(n.Reason).OfCluster()
		if !r.IsHostFault() {
			continue
		}
		lease := n.LeaseID
		x.addWrite(func(ctx context.Context, w *writer) error {
			return metering.CreditLoss(ctx, w.tx, x.row.ID, lease, string(r))
		})
	}
}

// culprits returns the node whose loss ended the billed time, if it is exactly one, it is lost for good, and the
// control plane could receive from its host without a gap. Another rank that is in doubt at the same time and may come
// back is not to blame.
func (x *lockedCluster) culprits(d lifecycle.Decision) (out []*node) {
	f := x.facts()
	for i, n := range x.nodes {
		s := lifecycle.NodeState(n.State)
		if s != lifecycle.NodeLost && s != lifecycle.NodeFailed || n.StartedAt == nil || n.ended != nil || !n.required {
			continue
		}
		if !f.Nodes[i].IsFinal(f) || d.On != lifecycle.OnLossFinal && !slices.Contains(d.Ranks, int(n.Rank)) {
			continue
		}
		since := interval.Span{Start: x.goodThrough(n).Add(-fairness.CreditGapWindow).UnixMilli(), End: x.now.UnixMilli()}
		if len(x.deaf(n).Clip(since)) > 0 {
			continue
		}
		out = append(out, n)
	}
	if len(out) != 1 {
		return nil
	}
	// A rank that was lost before it, or within the same moments, shares the blame.
	for _, m := range x.nodes {
		s := lifecycle.NodeState(m.State)
		if m != out[0] && m.required && m.ended == nil && (s == lifecycle.NodeLost || s == lifecycle.NodeFailed) &&
			x.goodThrough(m).Before(x.goodThrough(out[0])) {
			return nil
		}
	}
	return out
}

// lateStarts records the time for which ranks that had started waited for ranks that started too late, or have not
// started: it is billed to no renter, and the late ranks' hosts are to blame for it.
func (x *lockedCluster) lateStarts() {
	if len(x.nodes) < 2 || x.row.GoAt == nil {
		return
	}
	var ranks []*node
	var started []int64
	for _, n := range x.nodes {
		if !n.required || n.ended != nil {
			continue
		}
		ranks = append(ranks, n)
		if n.StartedAt == nil {
			started = append(started, 0)
		} else {
			started = append(started, n.StartedAt.UnixMilli())
		}
	}
	b, ok := fairness.Begin(started)
	if !ok || len(b.Late) == 0 || slices.ContainsFunc(ranks, x.deafNow) {
		return
	}
	cuts := []int64{b.FromMS, x.now.UnixMilli()}
	if !slices.Contains(started, 0) {
		cuts[1] = slices.Max(started)
	}
	for _, k := range b.Late {
		x.strike(ranks[k], nil, strikeStart)
		if started[k] > 0 {
			cuts = append(cuts, started[k])
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for i := range len(cuts) - 1 {
		var culprits []id.Lease
		for _, k := range b.Late {
			if started[k] == 0 || started[k] > cuts[i] {
				culprits = append(culprits, ranks[k].LeaseID)
			}
		}
		if len(culprits) > 0 {
			x.suspended = append(x.suspended, dbq.InsertSuspensionParams{
				ClusterID: x.row.ID, FromMs: cuts[i], ToMs: cuts[i+1], Class: string(fairness.Proof),
				Culprits: id.UUIDs(culprits...),
			})
		}
	}
}
