-- name: LostLeases :many
-- Leases of lost hosts whose ranks continued elsewhere, of which something may still be left on those hosts.
SELECT r.lost_lease, r.lost_host, l.gpus_free_at
FROM node_replacement r JOIN lease l ON l.id = r.lost_lease
WHERE r.cluster_id = @cluster_id AND l.gone_at IS NULL
ORDER BY r.lost_lease;

-- name: ClusterRates :many
-- What each lease of a cluster costs per hour, what it has and where, in the order they were made.
SELECT DISTINCT ON (l.rank, l.created_at, l.id) l.id, l.rank, l.host_id, h.fabric_id, l.gpu_model, p.rate,
       l.host_org_id, l.gpu_count, coalesce(b.srate, p.rate)::bigint AS standby_rate
FROM lease l
LEFT JOIN lease_bond b ON b.lease_id = l.id
JOIN host h ON h.id = l.host_id
JOIN lease_price p ON p.lease_id = l.id
WHERE l.cluster_id = @cluster_id
ORDER BY l.rank, l.created_at, l.id, p.from_ms DESC;

-- name: InsertReplacement :exec
-- Logs that wait on the lost host stay recorded with it; no report about the node on its new host has arrived yet.
WITH s AS (
    SELECT n.id, n.lease_id, n.host_id, s.logs_kept FROM node n JOIN node_status s ON s.node_id = n.id WHERE n.id = @node_id
)
INSERT INTO node_replacement (lost_lease, cluster_id, node_id, lost_host, lease_id, host_id, logs_kept, at)
SELECT s.lease_id, @cluster_id, s.id, s.host_id, @lease_id, @host_id, s.logs_kept, @at FROM s;

-- name: MoveNode :exec
UPDATE node SET lease_id = @lease_id, host_id = @host_id WHERE id = @id;

-- name: ForgetNodeStatus :exec
UPDATE node_status
SET epoch = @epoch, last_good_ms = 0, good = false, peers_down = '{}', progress = '{}', paths = '[]', boot_id = '', boot_ms = 0,
    logs_kept = '{}', trouble = '', trouble_detail = '', reported_at = @at
WHERE node_id = @node_id;
