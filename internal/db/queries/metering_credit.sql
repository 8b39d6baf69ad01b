-- name: InsertServiceCredit :exec
INSERT INTO service_credit (lease_id, cluster_id, reason, from_ms, through_ms) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (lease_id) DO NOTHING;

-- name: ServiceCredits :many
SELECT c.lease_id, c.cluster_id, c.reason, c.from_ms, c.through_ms, c.credited, c.host_part, c.created_at, l.rank, l.host_id, h.name AS host_name
FROM service_credit c JOIN lease l ON l.id = c.lease_id JOIN host h ON h.id = l.host_id
WHERE c.cluster_id = $1 ORDER BY c.lease_id;

-- name: ServiceCreditsOfHost :many
SELECT c.lease_id, c.reason, c.credited, c.host_part, c.created_at
FROM service_credit c JOIN lease l ON l.id = c.lease_id
WHERE l.host_id = $1 ORDER BY c.lease_id;

-- name: SetServiceCredit :exec
UPDATE service_credit SET credited = $2, host_part = $3 WHERE lease_id = $1;

-- name: LedgerTxByKey :one
SELECT id FROM ledger_tx WHERE key = $1;
