package cluster

import (
	"context"
	"slices"

	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/interval"
)

// hostFaults are the reasons for which a node is lost through no doing of its renter.
var hostFaults = []Reason{ReasonHostLost, ReasonAgentLost, ReasonHostInterrupted, ReasonGPUFailed, ReasonGPUInUse,
	ReasonRuntimeFailed, ReasonScratchFailed, ReasonOverlayFailed, ReasonGuestDied, ReasonHostReclaimed}

// creditLost gives the renter back what nodes cost that are lost for good by their hosts' fault. It is called before
// the transition that ends or leaves them, and books after the window is closed.
func (x *lockedCluster) creditLost(d Decision) {
	switch d.On {
	case OnLossFinal, OnRankIgnored, OnReplacing:
	default:
		return
	}
	for _, n := range x.culprits(d) {
		r := Reason(n.Reason)
		if r == ReasonNone || sentences[r].NodeOnly {
			r = ReasonHostLost
		}
		if !slices.Contains(hostFaults, r) {
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
func (x *lockedCluster) culprits(d Decision) (out []*node) {
	f := x.facts()
	for i, n := range x.nodes {
		s := NodeState(n.State)
		if s != NodeLost && s != NodeFailed || n.StartedAt == nil || n.ended != nil || !n.required {
			continue
		}
		if !f.Nodes[i].finally(f) || d.On != OnLossFinal && !slices.Contains(d.Ranks, int(n.Rank)) {
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
		s := NodeState(m.State)
		if m != out[0] && m.required && m.ended == nil && (s == NodeLost || s == NodeFailed) &&
			x.goodThrough(m).Before(x.goodThrough(out[0])) {
			return nil
		}
	}
	return out
}
