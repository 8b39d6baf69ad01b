package cluster

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
)

// part ends a node: nothing of the node is left on its host, or the host was given up. Its GPUs are free if they were
// not before.
func (rp *reports) part(n *node) {
	rp.countUpload(n)
	n.gone = &rp.now
	rp.out.freed = append(rp.out.freed, n)
	rp.life.step(n, lifecycle.NodeGone, lifecycle.ReasonNone, "")
	rp.out.addWrite(func(ctx context.Context, w *writer) error { return metering.LeaseGone(ctx, w.tx, n.LeaseID) })
}

// partLost is part for a lease whose rank moved to another host.
func (rp *reports) partLost(l id.Lease) {
	i := slices.IndexFunc(rp.lost, func(r dbq.LostLeasesRow) bool { return r.LostLease == l })
	if i < 0 {
		return
	}
	rp.out.freed = append(rp.out.freed, &node{Node: dbq.Node{LeaseID: l, HostID: rp.lost[i].LostHost}})
	rp.lost = slices.Delete(rp.lost, i, i+1)
	rp.out.addWrite(func(ctx context.Context, w *writer) error { return metering.LeaseGone(ctx, w.tx, l) })
}

// awaitingEnd are the ended leases of which something may be left on their hosts.
func (rp *reports) awaitingEnd() (out []id.Lease) {
	for _, l := range rp.lost {
		out = append(out, l.LostLease)
	}
	for _, n := range rp.members.nodes {
		if n.ended != nil && n.gone == nil {
			out = append(out, n.LeaseID)
		}
	}
	return out
}

// partUnheld parts with those ended leases that are not held: the host has shown that nothing is left, or was out of
// reach for so long that host.AbandonClaims gave it up.
func (rp *reports) partUnheld(ended []id.Lease, held []pgtype.UUID) {
	for _, l := range ended {
		if slices.Contains(held, id.UUIDs(l)[0]) {
			continue
		}
		if n := rp.members.byLease(l); n != nil {
			rp.part(n)
		} else {
			rp.partLost(l)
		}
	}
}
