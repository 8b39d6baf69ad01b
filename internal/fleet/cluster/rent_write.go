package cluster

import (
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/idem"
)

// queueWrites queues all that the rent writes: the claims and the hosts' new revisions, the cluster, its nodes and
// leases, the money it holds, its first event, the audit record, and the answer to the idempotency key. After the commit
// the hosts and the pages that show the cluster are woken.
func (d *deal) queueWrites(b *pgx.Batch, tx *db.Tx, key idem.Request) error {
	d.claim.QueueWrite(b, d.lease)
	host.QueueRevision(b, tx, d.c.bus, d.placed.HostIDs())
	db.Write(b, (*dbq.Queries).InsertCluster, d.row)
	for _, n := range d.placed.Nodes {
		db.Write(b, (*dbq.Queries).InsertNode, dbq.InsertNodeParams{
			ID:        d.nodes[n.Rank],
			ClusterID: d.id,
			Rank:      int32(n.Rank),
			HostID:    n.Host,
			LeaseID:   d.lease(n.Rank),
			Address:   address(n.Rank),
			Since:     d.now,
		})
	}
	if err := d.money.QueueWrite(b); err != nil {
		return err
	}
	if err := d.stakes.QueueWrite(b, d.money.Locked()); err != nil {
		return err
	}
	event, _ := on("", OnRented)
	gpus := "GPUs"
	if d.spec.GPUsPerNode == 1 {
		gpus = "GPU"
	}
	db.Write(b, (*dbq.Queries).InsertClusterEvent, dbq.InsertClusterEventParams{
		ClusterID: d.id,
		At:        d.now,
		Kind:      string(OnRented),
		Title:     event.Title,
		Data:      []byte("{}"),
		Detail: fmt.Sprintf("%d × %d %s at %s per hour; %s held", d.spec.Nodes, d.spec.GPUsPerNode, gpus,
			d.placed.Rate.Plain(), d.held.Plain()),
	})
	if err := audit.Queue(b, d.principal.Event("cluster.rent", d.id.String(), map[string]any{
		"nodes":          d.spec.Nodes,
		"gpus_per_node":  d.spec.GPUsPerNode,
		"price_per_hour": d.placed.Rate.String(),
		"image":          d.spec.Image,
	})); err != nil {
		return err
	}
	tx.AfterCommit(func() { d.c.bus.Changed(bus.TopicCluster(d.id), bus.TopicOrg(d.principal.Org)) })
	return key.QueueFinish(b, http.StatusAccepted, d.view)
}
