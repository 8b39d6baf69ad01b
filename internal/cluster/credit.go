package cluster

import (
	"context"
	"slices"

	"github.com/musterhq/muster/internal/metering"
)

// hostFaults are the reasons for which a node is lost through no doing of its renter.
var hostFaults = []Reason{ReasonHostLost, ReasonAgentLost, ReasonHostInterrupted, ReasonGPUFailed, ReasonGPUInUse, ReasonRuntimeFailed, ReasonScratchFailed, ReasonOverlayFailed, ReasonGuestDied, ReasonHostReclaimed}

// creditLost gives the renter back what nodes cost that are lost for good by their hosts' fault. It is called before the
// transition that ends or leaves them, and books after the window is closed.
func (x *change) creditLost(d Decision) {
	switch d.On {
	case OnLossFinal, OnRankIgnored, OnReplacing:
	default:
		return
	}
	for _, n := range x.nodes {
		s := NodeState(n.State)
		if s != NodeLost && s != NodeFailed || n.StartedAt == nil || n.ended != nil || d.On != OnLossFinal && !slices.Contains(d.Ranks, int(n.Rank)) {
			continue
		}
		r := Reason(n.Reason)
		if r == ReasonNone || sentences[r].NodeOnly {
			r = ReasonHostLost
		}
		if !slices.Contains(hostFaults, r) {
			continue
		}
		lease := n.LeaseID
		x.book(func(ctx context.Context) error { return metering.CreditLoss(ctx, x.tx, x.row.ID, lease, string(r)) })
	}
}
