package dbtest

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/internal/id"
)

// Place is a node of a cluster that a test writes without renting it.
type Place struct {
	Node  id.Node
	Lease id.Lease // created by the caller, in the same transaction
	Host  id.Host
	Rank  int
}

// InsertCluster writes a running cluster of an organisation, if it is not there yet, and adds nodes to it. The
// watchdog does not look at it. It runs in the caller's transaction, which must also create the leases of the nodes.
func InsertCluster(ctx context.Context, tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, cluster id.Cluster, renter id.Org, currency string, places ...Place) error {
	if _, err := tx.Exec(ctx, `INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count,
		gpus_per_node, rate, currency) VALUES ($1, $2, $2, $1::uuid::text, '{}', 'i', 'running', 1, 1, 1, $3)
		ON CONFLICT (id) DO NOTHING`, cluster, renter, currency); err != nil {
		return err
	}
	for _, p := range places {
		if _, err := tx.Exec(ctx, `INSERT INTO node (id, cluster_id, rank, host_id, lease_id, epoch, state, address)
			VALUES ($1, $2, $3, $4, $5, 1, 'ready', '10.0.0.1')`, p.Node, cluster, p.Rank, p.Host, p.Lease); err != nil {
			return err
		}
	}
	return nil
}
