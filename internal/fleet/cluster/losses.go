package cluster

import (
	"context"
	"slices"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
)

// creditLost returns to the renter what the nodes cost that are lost for good by their hosts' fault. It is called
// before the transition that ends or leaves these nodes, and books after the window is closed.
func (lf *life) creditLost(d lifecycle.Decision) {
	switch d.On {
	case lifecycle.OnLossFinal, lifecycle.OnRankIgnored, lifecycle.OnReplacing:
	default:
		return
	}
	for _, n := range lf.culprits(d) {
		r := lifecycle.Reason(n.Reason).OfCluster()
		if !r.IsHostFault() {
			continue
		}
		lease := n.LeaseID
		lf.out.addWrite(func(ctx context.Context, w *writer) error {
			return metering.CreditLoss(ctx, w.tx, lf.row.ID, lease, string(r))
		})
	}
}

// culprits returns the node whose loss ended the billed time, if it is exactly one, it is lost for good, and the
// control plane could receive from its host without a gap. Another rank that is in doubt at the same time and may come
// back is not to blame.
func (lf *life) culprits(d lifecycle.Decision) (out []*node) {
	f := lf.facts()
	for i, n := range lf.members.nodes {
		s := lifecycle.NodeState(n.State)
		if s != lifecycle.NodeLost && s != lifecycle.NodeFailed || n.StartedAt == nil || n.ended != nil || !n.required {
			continue
		}
		if !f.Nodes[i].IsFinal(f) || d.On != lifecycle.OnLossFinal && !slices.Contains(d.Ranks, int(n.Rank)) {
			continue
		}
		since := interval.Span{
			Start: lf.billing.goodThrough(n).Add(-fairness.CreditGapWindow).UnixMilli(), End: lf.now.UnixMilli(),
		}
		if len(lf.members.deaf(n).Clip(since)) > 0 {
			continue
		}
		out = append(out, n)
	}
	if len(out) != 1 {
		return nil
	}
	// A rank that was lost before it, or within the same moments, shares the blame.
	for _, m := range lf.members.nodes {
		s := lifecycle.NodeState(m.State)
		if m != out[0] && m.required && m.ended == nil && (s == lifecycle.NodeLost || s == lifecycle.NodeFailed) &&
			lf.billing.goodThrough(m).Before(lf.billing.goodThrough(out[0])) {
			return nil
		}
	}
	return out
}

// countEnd counts a final loss against its host. After an undecided end, for which no host is to blame, the hosts at
// both ends get a strike, and for a day the renter is not placed on these hosts and the two operators are not placed
// together.
func (lf *life) countEnd(d lifecycle.Decision) {
	if d.On != lifecycle.OnLossFinal && d.On != lifecycle.OnRankIgnored && d.On != lifecycle.OnReplacing {
		return
	}
	if d.Reason != lifecycle.ReasonPeersUnreachable {
		for _, n := range lf.culprits(d) {
			if lifecycle.Reason(n.Reason) != lifecycle.ReasonHostWithdrawn { // its operator gave notice in time
				lf.doubts.strike(n, nil, strikeLoss)
			}
		}
		return
	}
	until := lf.now.Add(fairness.PairBan)
	for _, u := range lf.doubts.disputed {
		n, m := lf.members.nodes[u.Low], lf.members.nodes[u.High]
		lf.doubts.strike(n, m, strikeUndecided)
		lf.doubts.strike(m, n, strikeUndecided)
		a, b := n.operator, m.operator
		if b.Compare(a) < 0 {
			a, b = b, a
		}
		lf.out.bans = append(lf.out.bans,
			ban{A: id.UUIDs(lf.row.OrgID)[0], B: id.UUIDs(n.HostID)[0], Until: until},
			ban{A: id.UUIDs(lf.row.OrgID)[0], B: id.UUIDs(m.HostID)[0], Until: until})
		if a != b {
			lf.out.bans = append(lf.out.bans, ban{A: id.UUIDs(a)[0], B: id.UUIDs(b)[0], Until: until})
		}
	}
}
