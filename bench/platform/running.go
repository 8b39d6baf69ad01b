package platform

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// ID7 makes ids in the order of time, as the server does.
const ID7 = `CREATE FUNCTION id7(at timestamptz, kind int, n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
	SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(kind), 3, '0') ||
	'b' || lpad(to_hex(n), 15, '0'))::uuid $$`

// running are $n clusters of organisation $org, each of one node of one GPU, that run and are due now. A node and its
// lease name each other, so one string, which is one transaction, writes both.
var running = []string{
	`CREATE TABLE runs AS SELECT i, h.id AS host_id, h.org_id AS host_org, id7(clock_timestamp(), 21, i) AS cluster,
		id7(clock_timestamp(), 22, i) AS node, id7(clock_timestamp(), 23, i) AS lease,
		clock_timestamp() - interval '5 minutes' AS at FROM generate_series(1, $n) i JOIN (SELECT id, org_id, row_number()
		OVER (ORDER BY id) AS n, count(*) OVER () AS all_hosts FROM host) h ON h.n = 1 + i % h.all_hosts`,
	`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node, rate, currency,
		created_at, go_at, running_at, run_until, due_at, full_look_at)
		SELECT cluster, '$org', '$org', 'run-' || i, '{"nodes":1,"gpus_per_node":1}', 'registry.example/train:1',
		'running', 1, 1, 2000000, 'USD', at, at, at, at + interval '1 day', clock_timestamp(),
		clock_timestamp() + interval '1 day' FROM runs`,
	`INSERT INTO node (id, cluster_id, rank, host_id, lease_id, epoch, state, address, started_at, since) SELECT node,
		cluster, 0, host_id, lease, 1, 'ready', '10.0.0.1', at, at FROM runs;
		INSERT INTO lease (id, cluster_id, node_id, rank, host_id, renter_org_id, host_org_id, gpu_count, gpu_model, gpu_ids,
		cpu_cores, ram_mb, disk_gb, currency, host_share_ppm, epoch, run_until, created_at)
		SELECT lease, cluster, node, 0, host_id, '$org', host_org, 1, 'H100', '{}', 8, 64000, 100, 'USD', 850000, 1, at +
		interval '1 day', at FROM runs`,
	`INSERT INTO node_status (node_id, epoch, good, last_good_ms, reported_at) SELECT node, 1, true, extract(epoch FROM
		clock_timestamp()) * 1000, clock_timestamp() FROM runs`,
	`INSERT INTO lease_price (lease_id, from_ms, rate, items) SELECT lease, 0, 2000000, '[]' FROM runs`,
	`INSERT INTO lease_meter (lease_id) SELECT lease FROM runs`,
	`INSERT INTO cluster_window (cluster_id, n, opened_ms, confirmed_until_ms) SELECT cluster, 1, extract(epoch FROM at) *
		1000, extract(epoch FROM at) * 1000 FROM runs`,
	`DROP TABLE runs`,
}

// Running returns the statements that add n clusters that run, spread over all hosts. They need ID7.
func Running(org id.Org, n int) []string {
	out := make([]string, len(running))
	for i, q := range running {
		out[i] = strings.NewReplacer("$org", org.UUID().String(), "$n", fmt.Sprint(n)).Replace(q)
	}
	return out
}

// HoldForRunning holds money of org for every cluster that runs.
func HoldForRunning(ctx context.Context, d *db.DB, org id.Org) error {
	rows, err := d.Pool.Query(ctx, "SELECT id FROM cluster WHERE state = 'running' ORDER BY id")
	if err != nil {
		return err
	}
	clusters, err := pgx.CollectRows(rows, pgx.RowTo[id.Cluster])
	if err != nil {
		return err
	}
	for len(clusters) > 0 {
		n := min(len(clusters), 500)
		entries := make([]ledger.Entry, n)
		for i, c := range clusters[:n] {
			entries[i] = ledger.Entry{Kind: "topup", Key: "topup:" + c.String(), Transfers: []ledger.Transfer{{
				Debit:  ledger.StripeClearing(Currency),
				Credit: ledger.Hold(org, c, Currency), Amount: 100 * money.Unit,
			}}}
		}
		clusters = clusters[n:]
		err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			_, err := ledger.PostAll(ctx, tx, entries)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
