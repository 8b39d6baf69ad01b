package db_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// A row without its parent is refused, and so is an account or an entry of a kind that the platform does not know.
// Each statement would be accepted if $1, a random id, or the kind were right: see TestRowsWithParentsAreAccepted.
var guarded = map[string]string{
	"lease_cluster": `INSERT INTO lease (id, cluster_id, node_id, rank, host_id, renter_org_id, host_org_id, gpu_count,
		gpu_model, gpu_ids, cpu_cores, ram_mb, disk_gb, currency, host_share_ppm, epoch)
		SELECT gen_random_uuid(), $1, node_id, rank + row_number() OVER (), host_id, renter_org_id, host_org_id, gpu_count,
		gpu_model, gpu_ids,
		cpu_cores, ram_mb, disk_gb, currency, host_share_ppm, epoch FROM lease`,
	"lease_node": `INSERT INTO lease (id, cluster_id, node_id, rank, host_id, renter_org_id, host_org_id, gpu_count,
		gpu_model, gpu_ids, cpu_cores, ram_mb, disk_gb, currency, host_share_ppm, epoch)
		SELECT gen_random_uuid(), cluster_id, $1, rank + 1, host_id, renter_org_id, host_org_id, gpu_count, gpu_model,
		gpu_ids,
		cpu_cores, ram_mb, disk_gb, currency, host_share_ppm, epoch FROM lease`,
	"node_current_lease": `UPDATE node SET lease_id = $1`,
	"cluster_window_cluster": `INSERT INTO cluster_window (cluster_id, n, opened_ms, confirmed_until_ms)
		VALUES ($1, 1, 1, 2)`,
	"rank_gap_lease":  `INSERT INTO rank_gap (lease_id, epoch, from_ms, to_ms) VALUES ($1, 1, 1, 2)`,
	"deaf_span_lease": `INSERT INTO deaf_span (lease_id, epoch, peer, from_ms, to_ms) VALUES ($1, 1, 1, 1, 2)`,
	"gang_strike_cluster": `INSERT INTO gang_strike (host_id, cluster_id, kind, at)
		SELECT id, $1, 'doubt', clock_timestamp() FROM host`,
	"gang_strike_against": `INSERT INTO gang_strike (host_id, cluster_id, against_org, kind, at)
		SELECT host_id, cluster_id, $1, 'undecided', clock_timestamp() FROM lease`,
	"lease_bond_of_cluster": `INSERT INTO lease_bond (lease_id, cluster_id, host_id, org_id, currency, srate, amount)
		SELECT id, $1, host_id, host_org_id, 'USD', 1, 1 FROM lease`,
	"standby_of_cluster": `INSERT INTO standby (victim, culprit, cluster_id)
		SELECT a.id, b.id, $1 FROM lease a JOIN lease b ON a.id < b.id`,
	"standby_relief_of_cluster": `INSERT INTO standby_relief (victim, cluster_id) SELECT min(id::text)::uuid, $1 FROM
		lease`,
	"service_credit_cluster": `INSERT INTO service_credit (lease_id, cluster_id, reason, from_ms, through_ms)
		SELECT id, $1, 'host_lost', 1, 2 FROM lease LIMIT 1`,
	"node_replacement_lost_lease": `INSERT INTO node_replacement (lost_lease, cluster_id, node_id, lost_host, lease_id,
		host_id, at) SELECT $1, cluster_id, node_id, host_id, id, host_id, created_at FROM lease LIMIT 1`,
	"ledger_account_kind": `INSERT INTO ledger_account (id, kind, owner, currency) VALUES ($1, 'wallet', $1, 'USD')`,
	"ledger_tx_kind":      `INSERT INTO ledger_tx (id, kind, key) VALUES ($1, 'top_up', 'k')`,
}

// leases writes two leases of a host in clusters of their own.
func leases(t *testing.T, d *db.DB) (cluster id.Cluster) {
	t.Helper()
	org, user := fleettest.Org(t, d)
	a := fleettest.Enroll(t, d, org, user, 1)
	fleettest.Lease(t, d, a.Host, org)
	cluster, _ = fleettest.Lease(t, d, a.Host, org)
	return cluster
}

func TestRowsWithoutParentsAreRefused(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	leases(t, d)
	for constraint, sql := range guarded {
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, sql, id.New[id.Lease]().UUID())
			return err
		})
		var pe *pgconn.PgError
		if !errors.As(err, &pe) || pe.ConstraintName != constraint {
			t.Errorf("%s: %v", constraint, err)
		}
	}
	var left []string
	if err := d.Pool.QueryRow(t.Context(), `SELECT array_agg(conname ORDER BY conname) FROM pg_constraint
		WHERE NOT convalidated`).Scan(&left); err != nil || len(left) != 0 {
		t.Errorf("constraints that were never validated: %v, %v", left, err)
	}
}

// With its parent, each row of a cluster is accepted, so that what is refused above is refused for its parent alone.
func TestRowsWithParentsAreAccepted(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	cluster := leases(t, d)
	org, _ := fleettest.Org(t, d)
	undo := errors.New("undo")
	for constraint, sql := range guarded {
		table, _, _ := strings.Cut(constraint, "_")
		var parent any = cluster
		switch {
		case table == "ledger": // of no parent
			sql = strings.NewReplacer("'wallet'", "'renter_wallet'", "'top_up'", "'topup'").Replace(sql)
		case strings.HasSuffix(constraint, "_against"):
			parent = org
		case strings.HasSuffix(constraint, "lease"):
			sql = strings.ReplaceAll(sql, "$1", "(SELECT id FROM lease WHERE cluster_id = $1)")
		case strings.HasSuffix(constraint, "node"):
			sql = strings.ReplaceAll(sql, "$1", "(SELECT id FROM node WHERE cluster_id = $1)")
		}
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if _, err := tx.Exec(ctx, sql, parent); err != nil {
				return err
			}
			if table == "ledger" { // its kinds are checked at once, and an entry has no transfers here
				return undo
			}
			if _, err := tx.Exec(ctx, "SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
				return err
			}
			return undo
		}); !errors.Is(err, undo) {
			t.Errorf("%s: %v", constraint, err)
		}
	}
}
