-- Reports of hosts without leases in which nothing is new: most of what an idle fleet sends.

-- name: QuietReports :many
-- Of the reports given as arrays, those that need no more than to be received: the host knows its desired state, has no
-- lease of which something may be left, keeps no log for us, and is stored as it reports itself. A report whose boot has no
-- anchor of the last half hour is not quiet. number is a report's place in the arrays.
SELECT r.number::integer AS number, h.revision, e.epoch AS control_epoch, a.number AS anchor, a.boot_ms, a.server_ms
FROM (SELECT unnest(@numbers::integer[]) AS number, unnest(@hosts::uuid[]) AS host_id, unnest(@boots::text[]) AS boot_id,
             unnest(@boot_ms::bigint[]) AS boot_ms, unnest(@revisions::bigint[]) AS revision, unnest(@epochs::bigint[]) AS epoch,
             unnest(@versions::text[]) AS agent_version, unnest(@protocols::integer[]) AS protocol,
             unnest(@capabilities::text[]) AS capabilities, -- array literals: unnest would flatten arrays
             unnest(@states::text[]) AS update_state, unnest(@update_versions::text[]) AS update_version,
             unnest(@tries::integer[]) AS update_try, unnest(@details::text[]) AS update_detail) r
JOIN host h ON h.id = r.host_id
JOIN host_status s ON s.host_id = r.host_id
JOIN control e ON e.epoch = r.epoch
JOIN time_anchor a ON a.host_id = r.host_id AND a.boot_id = r.boot_id
  AND a.number = (SELECT max(t.number) FROM time_anchor t WHERE t.host_id = r.host_id AND t.boot_id = r.boot_id)
  AND a.boot_ms <= r.boot_ms AND a.server_ms > floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1800000
LEFT JOIN host_agent g ON g.host_id = r.host_id
LEFT JOIN agent_channel v ON v.name = coalesce(g.channel, 'stable')
WHERE h.state IN ('active', 'draining') AND h.revision = r.revision AND NOT h.needs_full_report AND h.engine_away = ''
  AND h.capped_until IS NULL AND h.down_cap_gb IS NULL
  AND s.revision_seen = r.revision AND s.agent_version = r.agent_version AND s.protocol = r.protocol
  AND coalesce(g.capabilities, '{}') = r.capabilities::text[] AND coalesce(g.update_state, '') = r.update_state
  AND coalesce(g.update_version, '') = r.update_version AND coalesce(g.update_try, 0) = r.update_try
  AND coalesce(g.update_detail, '') = r.update_detail AND coalesce(v.version, '') IN ('', r.agent_version)
  AND NOT EXISTS (SELECT FROM lease l WHERE l.host_id = r.host_id AND l.gone_at IS NULL)
  AND NOT EXISTS (SELECT FROM node n JOIN node_status k ON k.node_id = n.id WHERE n.host_id = r.host_id AND k.logs_kept <> '{}')
  AND NOT EXISTS (SELECT FROM node_replacement m WHERE m.lost_host = r.host_id AND m.logs_kept <> '{}');
