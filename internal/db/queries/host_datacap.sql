-- A month's data over hosts' own lines, and the caps their operators set. The sums are kept by triggers: see
-- migrations/*_host_data_cap.sql, *_host_pulls.sql and *_overlay_traffic.sql.

-- name: HostDataMonth :one
-- Of the month that it is now.
SELECT (n.month AT TIME ZONE 'UTC')::timestamptz AS month, coalesce(m.up_bytes, 0)::bigint AS up_bytes, coalesce(m.down_bytes, 0)::bigint AS down_bytes,
       coalesce(m.overlay_up_bytes, 0)::bigint AS overlay_up_bytes, coalesce(m.overlay_down_bytes, 0)::bigint AS overlay_down_bytes,
       coalesce(m.pull_bytes, 0)::bigint AS pull_bytes, p.bytes AS pulls_told, -- NULL: its agent does not count them
       h.org_id, h.name, h.up_cap_gb, h.down_cap_gb, h.capped_until
FROM host h
CROSS JOIN (SELECT date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC') AS month) n
LEFT JOIN host_month_traffic m ON m.host_id = h.id AND m.month = n.month::date
LEFT JOIN host_pulls p ON p.host_id = h.id
WHERE h.id = @host_id;

-- name: PutHostPulls :execrows
-- A counter only rises: a report that comes late changes nothing.
INSERT INTO host_pulls AS p (host_id, counter, bytes) VALUES (@host_id, @counter, @bytes)
ON CONFLICT (host_id) DO UPDATE
SET counter = excluded.counter, bytes = excluded.bytes, last_at = clock_timestamp()
WHERE p.counter <> excluded.counter OR p.bytes < excluded.bytes;

-- name: SetHostDataCap :exec
UPDATE host SET up_cap_gb = sqlc.narg(up_cap_gb)::bigint, down_cap_gb = sqlc.narg(down_cap_gb)::bigint WHERE id = @id;

-- name: SetHostCapped :exec
UPDATE host SET capped_until = sqlc.narg(until)::timestamptz WHERE id = @id;

-- name: LiftDataCaps :execrows
-- scan: done
UPDATE host SET capped_until = NULL
WHERE id IN (SELECT id FROM host WHERE capped_until <= statement_timestamp() ORDER BY id LIMIT 500 FOR NO KEY UPDATE SKIP LOCKED);
