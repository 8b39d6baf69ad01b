package cluster

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/notify"
)

// reclaim is when an operator takes a host back, and when they said so; zero: they do not.
type reclaim struct{ at, requestedAt time.Time }

// noticed reports whether there was time to save what a credit stands for: what was computed since the last checkpoint.
func (r reclaim) noticed() bool { return r.at.Sub(r.requestedAt) >= metering.CreditSpan }

// takenBack ends a node whose host its operator takes back, once the time has come; before, it tells the renter, once
// for each time that is set. It reports whether the node has ended.
func (x *lockedCluster) takenBack(n *node) bool {
	told := deref(n.ReclaimTold)
	switch {
	case n.back.at.IsZero() && told.IsZero():
	case n.back.at.IsZero():
		n.ReclaimTold, n.dirty = nil, true
		x.notifyReclaim(n, "Its host stays", "The operator of its host does not take the machine back after all.",
			notify.Info, told)
	case !x.now.Before(n.back.at):
		r, detail := ReasonHostReclaimed, "its operator took the machine back at once"
		if n.back.noticed() {
			r = ReasonHostWithdrawn
		}
		if told.Equal(n.back.at) {
			detail = fmt.Sprintf("its operator took the machine back, as was said at %s UTC",
				n.back.requestedAt.UTC().Format("2006-01-02 15:04:05"))
		}
		if x.step(n, NodeTakenBack, r, detail) {
			return true
		}
		return NodeState(n.State) == NodeFailed
	case !told.Equal(n.back.at):
		at := n.back.at
		n.ReclaimTold, n.dirty = &at, true
		body := fmt.Sprintf("The operator of its host takes the machine back at %s UTC: save what you need before.",
			at.UTC().Format("2006-01-02 15:04:05"))
		switch x.spec.OnNodeFailure {
		case "replace":
			body += " Another host is looked for then, and every rank starts again."
		case "ignore":
			body += " The other ranks go on without it."
		default:
			body += " The cluster ends then."
		}
		x.notifyReclaim(n, "Its host is taken back at "+at.UTC().Format("15:04:05")+" UTC", body, notify.Warn, at)
	}
	return false
}

// notifyReclaim writes into the timeline and tells the renter.
func (x *lockedCluster) notifyReclaim(n *node, title, body string, severity notify.Severity, at time.Time) {
	rank := n.Rank
	x.events = append(x.events, dbq.InsertClusterEventParams{
		ClusterID: x.row.ID,
		At:        x.now,
		Kind:      "host_reclaim",
		Rank:      &rank,
		Title:     fmt.Sprintf("Rank %d: %s", rank, lowerFirst(title)),
		Detail:    body,
		Data:      []byte("{}"),
	})
	x.notifyRenter(fmt.Sprintf("host_reclaim:%d:%t", at.Unix(), n.ReclaimTold != nil), []int{int(rank)},
		notify.Notice{
			Severity: severity,
			Title:    fmt.Sprintf("%s, rank %d: %s", x.row.Name, rank, lowerFirst(title)),
			Body:     body,
		})
}
