-- Reports in which nothing is new: most of what a fleet sends.

-- name: QuietReports :many
-- Of the reports given as arrays, those that need no more than to be received: the host knows its desired state, keeps no log
-- for us, and is stored as it reports itself. A host that reports no lease has none of which something may be left; of those
-- that report leases the caller compares them. A report whose boot has no anchor of the last half hour is not quiet. number is
-- a report's place in the arrays.
SELECT r.number::integer AS number, h.revision, e.epoch AS control_epoch, a.number AS anchor, a.boot_ms, a.server_ms,
       clock_timestamp()::timestamptz AS now
FROM (SELECT unnest(@numbers::integer[]) AS number, unnest(@hosts::uuid[]) AS host_id, unnest(@boots::text[]) AS boot_id,
             unnest(@boot_ms::bigint[]) AS boot_ms, unnest(@revisions::bigint[]) AS revision, unnest(@epochs::bigint[]) AS epoch,
             unnest(@versions::text[]) AS agent_version, unnest(@protocols::integer[]) AS protocol,
             unnest(@capabilities::text[]) AS capabilities, -- array literals: unnest would flatten arrays
             unnest(@states::text[]) AS update_state, unnest(@update_versions::text[]) AS update_version,
             unnest(@tries::integer[]) AS update_try, unnest(@details::text[]) AS update_detail,
             unnest(@leased::boolean[]) AS leased) r
JOIN host h ON h.id = r.host_id
JOIN host_status s ON s.host_id = r.host_id
JOIN control e ON e.epoch = r.epoch
JOIN time_anchor a ON a.host_id = r.host_id AND a.boot_id = r.boot_id
  AND a.number = (SELECT max(t.number) FROM time_anchor t WHERE t.host_id = r.host_id AND t.boot_id = r.boot_id)
  AND a.boot_ms <= r.boot_ms AND a.server_ms > floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1800000
LEFT JOIN host_agent g ON g.host_id = r.host_id
LEFT JOIN agent_channel v ON v.name = coalesce(g.channel, 'stable')
WHERE h.state IN ('active', 'draining') AND h.revision = r.revision AND NOT h.needs_full_report AND h.engine_away = ''
  AND h.capped_until IS NULL AND h.down_cap_gb IS NULL AND (h.up_cap_gb IS NULL OR NOT r.leased)
  AND s.revision_seen = r.revision AND s.agent_version = r.agent_version AND s.protocol = r.protocol
  AND coalesce(g.capabilities, '{}') = r.capabilities::text[] AND coalesce(g.update_state, '') = r.update_state
  AND coalesce(g.update_version, '') = r.update_version AND coalesce(g.update_try, 0) = r.update_try
  AND coalesce(g.update_detail, '') = r.update_detail AND coalesce(v.version, '') IN ('', r.agent_version)
  AND (r.leased OR NOT EXISTS (SELECT FROM lease l WHERE l.host_id = r.host_id AND l.gone_at IS NULL))
  AND NOT EXISTS (SELECT FROM node n JOIN node_status k ON k.node_id = n.id WHERE n.host_id = r.host_id AND k.logs_kept <> '{}')
  AND NOT EXISTS (SELECT FROM node_replacement m WHERE m.lost_host = r.host_id AND m.logs_kept <> '{}');

-- name: LeasesOfHosts :many
-- The leases of these hosts of which something may be left, as HostLeases returns them for one host, and how long they may run.
SELECT sqlc.embed(n), sqlc.embed(s), l.id AS lease_id, l.epoch AS lease_epoch, l.ended_at AS lease_ended_at, l.gone_at AS lease_gone_at,
       c.state AS cluster_state, c.epoch AS cluster_epoch, c.go_at, c.stop_at, c.node_count, c.image_digest, h.revision, h.capped_until,
       EXISTS (SELECT FROM node m WHERE m.cluster_id = c.id AND (m.exit_code <> 0 OR m.reason = 'preflight_failed')) AS in_doubt,
       coalesce(r.logs_kept, s.logs_kept)::integer[] AS logs_kept, l.gpus_free_at, l.host_id, l.run_until, c.start_deadline
FROM lease l
JOIN node n ON n.id = l.node_id
JOIN node_status s ON s.node_id = n.id
JOIN cluster c ON c.id = l.cluster_id
JOIN host h ON h.id = l.host_id
LEFT JOIN node_replacement r ON r.lost_lease = l.id
WHERE l.host_id = ANY (@hosts::uuid[]) AND l.gone_at IS NULL
ORDER BY l.id;

-- name: SaveGoodStatuses :many
-- Nodes that were well and whose hosts report them well and unchanged once more. The answer is the nodes of which that was
-- stored. Left out are nodes that changed meanwhile and those that another transaction has locked: waiting for several of
-- them at once could end in a deadlock.
WITH free AS (
    SELECT k.node_id FROM node_status k WHERE k.node_id = ANY (@nodes::uuid[]) FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE node_status s
SET last_good_ms = greatest(s.last_good_ms, r.good_ms), boot_ms = r.boot_ms, reported_at = greatest(s.reported_at, r.reported_at)
FROM (SELECT unnest(@nodes::uuid[]) AS node_id, unnest(@epochs::integer[]) AS epoch, unnest(@boots::text[]) AS boot_id,
             unnest(@boot_ms::bigint[]) AS boot_ms, unnest(@good_ms::bigint[]) AS good_ms,
             unnest(@reported_at::timestamptz[]) AS reported_at) r
JOIN free ON free.node_id = r.node_id
WHERE s.node_id = r.node_id AND s.epoch = r.epoch AND s.boot_id = r.boot_id AND s.boot_ms <= r.boot_ms AND s.good AND s.trouble = ''
  AND s.peers_down = '{}'
RETURNING s.node_id;
