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

// A rank is in doubt while it is not proven up. The billing window stays open meanwhile and nothing more of it is
// confirmed: proof may still come. What becomes of the time is decided in judge.go.

// deaf is when we could not hear the host of a node.
func (x *lockedCluster) deaf(n *node) interval.Set { return x.hearing.Deaf(n.listener, n.connected) }

// deafNow reports whether we cannot hear the host of a node at this moment, or it has not had time to come back.
func (x *lockedCluster) deafNow(n *node) bool { return x.deaf(n).Contains(x.now.UnixMilli()) }

// silentFor is how long since a moment we could have heard a node's host.
func (x *lockedCluster) silentFor(n *node, since time.Time) time.Duration {
	past := interval.Span{Start: since.UnixMilli(), End: x.now.UnixMilli()}
	return x.now.Sub(since) - time.Duration(x.deaf(n).Clip(past).Len())*time.Millisecond
}

// countDoubt counts a doubt against the host of a gang's rank. Doubts count by host and not by cluster, so that single
// mishaps of many hosts do not end a big cluster; see fairness.DoubtIsFinal.
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

// strike counts something against the host of a node. other is the opposite end of an undecided suspension, nil
// otherwise.
func (x *lockedCluster) strike(n, other *node, kind string) {
	s := dbq.InsertStrikeParams{HostID: n.HostID, ClusterID: x.row.ID, Kind: kind, At: x.now}
	if other != nil {
		s.AgainstOrg = uuids(other.operator)[0]
	}
	x.strikes = append(x.strikes, s)
	x.notifyStrike(n, other, kind)
}

// notifyStrike notifies the operator of a host of what counts against it in clusters of several nodes, and of what
// follows. Doubts are many and pass; of those the page of the bond tells.
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
		t.Title = fmt.Sprintf("%s and a host of another operator did not hear each other", n.hostName)
		t.Body = fmt.Sprintf("Ranks %d and %d of cluster %s were both well and did not hear each other. Nobody is to "+
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

// disputes are the pairs of ranks that do not hear each other though both their hosts report and find them well: when
// both claim it; or when one has claimed it for OneSided and no well rank of a third operator hears the accused.
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

// claimSince is since when the node's host has claimed without interruption not to hear a rank; zero: it does not.
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

// claimsAlone reports whether n has claimed for long enough not to hear m, and no rank of a third operator hears m.
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

// dispute keeps the record of the cluster's undecided suspensions in step with what ranks claim. It writes from now on
// and never backwards: claims cost nobody what is past.
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

// undGrace is how long an undecided suspension may last.
func (x *lockedCluster) undGrace() time.Duration {
	if x.now.Sub(x.lastStart()) < x.cfg.Young {
		return x.cfg.UndYoung
	}
	return x.cfg.UndGrace
}

// disputeFacts is what Next must know of undecided suspensions.
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

// doubtSentence says since when nothing is billed, which ranks do not answer, and what comes of it.
func (x *lockedCluster) doubtSentence(d lifecycle.Decision) string {
	since := x.confirmed()
	if !x.doubtFrom.IsZero() {
		since = x.doubtFrom
	}
	s := "Not billed since " + since.UTC().Format("15:04:05") + " UTC"
	if len(d.Ranks) == 2 && d.Reason == lifecycle.ReasonPeersUnreachable {
		return s + fmt.Sprintf(": ranks %d and %d do not hear each other.", d.Ranks[0], d.Ranks[1])
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

// countEnd counts a loss for good against its host. After an undecided end, which is nobody's fault, both ends get a
// strike, and neither the renter and these hosts nor the two operators are put together for a day.
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
			ban{A: uuids(x.row.OrgID)[0], B: uuids(n.HostID)[0], Until: until},
			ban{A: uuids(x.row.OrgID)[0], B: uuids(m.HostID)[0], Until: until})
		if a != b {
			x.bans = append(x.bans, ban{A: uuids(a)[0], B: uuids(b)[0], Until: until})
		}
	}
}

// creditLost gives the renter back what nodes cost that are lost for good by their hosts' fault. It is called before
// the transition that ends or leaves them, and books after the window is closed.
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

// culprits returns the node whose loss ended the billed time, when it is exactly one, it is lost for good, and we have
// heard its host without a gap. A rank that is in doubt beside it, and may come back, is not to blame.
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
	// Another rank that went first, or within the same moments, has a part in it.
	for _, m := range x.nodes {
		s := lifecycle.NodeState(m.State)
		if m != out[0] && m.required && m.ended == nil && (s == lifecycle.NodeLost || s == lifecycle.NodeFailed) &&
			x.goodThrough(m).Before(x.goodThrough(out[0])) {
			return nil
		}
	}
	return out
}

// lateStarts writes down the time for which ranks that had started waited for ranks that started too late, or not by
// now: it is billed to nobody, and the late ranks' hosts are to blame for it.
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
				ClusterID: x.row.ID, FromMs: cuts[i], ToMs: cuts[i+1], Class: string(fairness.Proof), Culprits: uuids(culprits...),
			})
		}
	}
}
