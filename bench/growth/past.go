package growth

// Rows of the past, made by PostgreSQL itself. Each statement takes $1, the organisation that rents and operates, and
// $2, how many. A node and its lease name each other, and an entry and its transfers belong to one transaction, so one
// string, which is one transaction, writes both.

// cluster i of n lived for an hour, ended and was settled; they are spread over the year that ended two days ago.
const pastOf = `WITH p AS (
	SELECT i, clock_timestamp() - interval '2 days' - interval '365 days' * ($2::int - i) / $2 AS at, h.id AS host_id,
	h.org_id AS host_org
	FROM generate_series(1, $2::int) i JOIN LATERAL (SELECT id, org_id FROM host ORDER BY id LIMIT 1) h ON true) `

const past = `
CREATE TABLE past AS ` + pastOf + ` SELECT i, at, host_id, host_org, id7(at, 1, i) AS cluster, id7(at, 2, i) AS node,
	id7(at, 3, i) AS lease, id7(at, 4, i) AS hold,
	id7(at, 5, i) AS tx, id7(at, 6, i) AS back, $1::uuid AS org FROM p`

var pastRows = []string{
	`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node, rate, currency,
		created_at, running_at, ended_at, run_until, settled_at)
		SELECT cluster, org, org, 'job-' || i, '{"nodes":1,"gpus_per_node":1}', 'registry.example/train:1', 'released', 1, 1,
		2000000, 'USD', at, at, at + interval '1 hour', at + interval '1 hour', at + interval '1 hour' FROM past`,
	`INSERT INTO node (id, cluster_id, rank, host_id, lease_id, epoch, state, address, started_at, since) SELECT node,
		cluster, 0, host_id, lease, 1, 'stopped', '10.0.0.1', at, at FROM past;
		INSERT INTO lease (id, cluster_id, node_id, rank, host_id, renter_org_id, host_org_id, gpu_count, gpu_model, gpu_ids,
		cpu_cores, ram_mb, disk_gb, currency, host_share_ppm, epoch,
		run_until, created_at, ended_at, gone_at, settled_at)
		SELECT lease, cluster, node, 0, host_id, org, host_org, 1, 'NVIDIA H100 80GB HBM3', '{}', 8, 64000, 100, 'USD',
		850000, 1, at + interval '1 hour', at, at + interval '1 hour',
		at + interval '1 hour', at + interval '1 hour' FROM past`,
	`INSERT INTO node_status (node_id, epoch, reported_at) SELECT node, 1, at FROM past`,
	`INSERT INTO lease_price (lease_id, from_ms, rate, items) SELECT lease, 0, 2000000, '[]' FROM past`,
	`INSERT INTO lease_meter (lease_id, settled_through_ms, billed_ms, numerator, posted, posted_billed_ms, host_posted)
		SELECT lease, floor(extract(epoch FROM at) * 1000) + 3600000, 3600000, 2000000::numeric * 3600000, 2000000000,
		3600000, 1700000000 FROM past`,
	`INSERT INTO cluster_window (cluster_id, n, opened_ms, confirmed_until_ms, closed_ms)
		SELECT cluster, 1, extract(epoch FROM at) * 1000, extract(epoch FROM at) * 1000 + 3600000, extract(epoch FROM at) *
		1000 + 3600000 FROM past`,
	`INSERT INTO ledger_account (id, kind, owner, org_id, currency, created_at, retired_at) SELECT hold, 'renter_hold',
		cluster, org, 'USD', at, at + interval '1 hour' FROM past`,
	`INSERT INTO ledger_balance (account_id, amount, floor) SELECT hold, 0, 0 FROM past`,
	`INSERT INTO ledger_tx (id, kind, key, ref, created_at) SELECT tx, 'authorise', 'authorise:' || cluster,
		cluster::text, at FROM past UNION ALL
		SELECT back, 'hold_release', 'hold_release:' || cluster, cluster::text, at + interval '1 hour' FROM past;
		INSERT INTO ledger_transfer (id, tx_id, debit_account_id, credit_account_id, currency, amount, created_at)
		SELECT id7(at, 7, i), tx, w.id, hold, 'USD', 1000000000, at FROM past, ledger_account w WHERE w.kind =
		'renter_wallet' AND w.owner = past.org UNION ALL
		SELECT id7(at, 8, i), back, hold, w.id, 'USD', 1000000000, at + interval '1 hour' FROM past, ledger_account w WHERE
		w.kind = 'renter_wallet' AND w.owner = past.org`,
	`INSERT INTO ledger_line (org_id, tx_id, currency, change, after) SELECT org, back, 'USD',
		'{"renter_hold":-1000000000,"renter_wallet":1000000000}', '{"renter_wallet":9000000000000000}' FROM past ORDER BY i`,
}

// linked: all of it is in the chain, as the past is.
const linked = "DELETE FROM ledger_unlinked"

// earned is a month of an operator: $2 leases of another organisation ($3), each with 40 postings of 15 minutes.
var earned = []string{
	`CREATE TABLE income AS SELECT i, k, clock_timestamp() - interval '2 hours' - interval '30 days' * (i % 997) / 997 + k
		* interval '15 minutes' - interval '10 hours' AS at
		FROM generate_series(1, %[3]d) i, generate_series(0, 39) k`,
	`CREATE TABLE accounts AS SELECT (SELECT id FROM ledger_account WHERE kind = 'host_pending' AND owner = '%[1]s') AS
		pending,
		(SELECT id FROM ledger_account WHERE kind = 'renter_wallet' AND owner = '%[2]s') AS wallet`,
	`INSERT INTO ledger_tx (id, kind, key, created_at) SELECT id7(at, 9, i * 64 + k), 'usage', 'usage:' || i || ':' || k,
		at FROM income;
		INSERT INTO ledger_transfer (id, tx_id, debit_account_id, credit_account_id, currency, amount, created_at)
		SELECT id7(at, 10, i * 64 + k), id7(at, 9, i * 64 + k), a.wallet, a.pending, 'USD', 425000000, at FROM income,
		accounts a`,
	`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node, rate, currency,
		created_at, running_at, ended_at, run_until, settled_at)
		SELECT id7(min(at), 12, i), '%[2]s', '%[2]s', 'earned-' || i, '{"nodes":1,"gpus_per_node":1}',
		'registry.example/train:1', 'released', 1, 1, 2000000, 'USD', min(at), min(at), max(at), max(at), max(at)
		FROM income GROUP BY i`,
	`INSERT INTO node (id, cluster_id, rank, host_id, lease_id, epoch, state, address, started_at, since)
		SELECT id7(min(at), 13, i), id7(min(at), 12, i), 0, (SELECT id FROM host ORDER BY id LIMIT 1),
		id7(min(at), 11, i), 1, 'stopped', '10.0.0.1', min(at), min(at) FROM income GROUP BY i;
		INSERT INTO lease (id, cluster_id, node_id, rank, host_id, renter_org_id, host_org_id, gpu_count, gpu_model, gpu_ids,
		cpu_cores, ram_mb, disk_gb, currency, host_share_ppm, epoch,
		run_until, created_at, ended_at, gone_at, settled_at)
		SELECT id7(min(at), 11, i), id7(min(at), 12, i), id7(min(at), 13, i), 0, (SELECT id FROM host ORDER BY id LIMIT 1),
		'%[2]s', '%[1]s', 1, 'H100', '{}', 8, 64000, 100, 'USD', 850000, 1,
		max(at), min(at), max(at), max(at), max(at) FROM income GROUP BY i`,
	`INSERT INTO lease_meter (lease_id, settled_through_ms, billed_ms, numerator, posted, posted_billed_ms, host_posted)
		SELECT id, extract(epoch FROM ended_at) * 1000, 36000000, 2000000::numeric * 36000000, 20000000000, 36000000,
		17000000000 FROM lease WHERE host_org_id = '%[1]s' AND renter_org_id = '%[2]s'`,
	`DROP TABLE income`, `DROP TABLE accounts`,
}
