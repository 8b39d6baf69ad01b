package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/db/dbq"
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
		return n.required && n.ExitCode == nil && x.reportedLately(n) && n.status.Good && NodeState(n.State) == NodeReady &&
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
	if s := State(x.row.State); s == Running || s == Degraded {
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
func (x *lockedCluster) disputeFacts() (d Dispute) {
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
func (x *lockedCluster) doubtSentence(d Decision) string {
	since := x.confirmed()
	if !x.doubtFrom.IsZero() {
		since = x.doubtFrom
	}
	s := "Not billed since " + since.UTC().Format("15:04:05") + " UTC"
	if len(d.Ranks) == 2 && d.Reason == ReasonPeersUnreachable {
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
func (x *lockedCluster) countEnd(d Decision) {
	if d.On != OnLossFinal && d.On != OnRankIgnored && d.On != OnReplacing {
		return
	}
	if d.Reason != ReasonPeersUnreachable {
		for _, n := range x.culprits(d) {
			if Reason(n.Reason) != ReasonHostWithdrawn { // its operator gave notice in time
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
