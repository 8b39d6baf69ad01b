-- What leases did on their hosts' own lines.

-- name: PutLeaseTraffic :exec
-- Sums only rise: a report that comes late changes nothing. Leases of other hosts are left out.
INSERT INTO lease_traffic AS t (lease_id, epoch, host_id, opened, refused, up_bytes, down_bytes,
    overlay_up_bytes, overlay_down_bytes, ranks_sent_bytes, ranks_received_bytes)
SELECT l.id, s.epoch, l.host_id, s.opened, s.refused, s.up_bytes, s.down_bytes, s.overlay_up, s.overlay_down, s.ranks_sent, s.ranks_received
FROM (SELECT unnest(@leases::uuid[]) AS id, unnest(@epochs::int[]) AS epoch, unnest(@opened::bigint[]) AS opened,
             unnest(@refused::bigint[]) AS refused, unnest(@up_bytes::bigint[]) AS up_bytes, unnest(@down_bytes::bigint[]) AS down_bytes,
             unnest(@overlay_up::bigint[]) AS overlay_up, unnest(@overlay_down::bigint[]) AS overlay_down,
             unnest(@ranks_sent::bigint[]) AS ranks_sent, unnest(@ranks_received::bigint[]) AS ranks_received,
             unnest(@hosts::uuid[]) AS host_id) s
JOIN lease l ON l.id = s.id AND l.host_id = s.host_id AND s.epoch <= l.epoch
ORDER BY l.id, s.epoch -- the order of locks
ON CONFLICT (lease_id, epoch) DO UPDATE
SET opened = greatest(t.opened, excluded.opened), refused = greatest(t.refused, excluded.refused),
    up_bytes = greatest(t.up_bytes, excluded.up_bytes), down_bytes = greatest(t.down_bytes, excluded.down_bytes),
    overlay_up_bytes = greatest(t.overlay_up_bytes, excluded.overlay_up_bytes), overlay_down_bytes = greatest(t.overlay_down_bytes, excluded.overlay_down_bytes),
    ranks_sent_bytes = greatest(t.ranks_sent_bytes, excluded.ranks_sent_bytes), ranks_received_bytes = greatest(t.ranks_received_bytes, excluded.ranks_received_bytes),
    last_at = clock_timestamp();

-- name: HostTraffic :many
SELECT t.lease_id, t.epoch, t.opened, t.refused, t.up_bytes, t.down_bytes, t.overlay_up_bytes, t.overlay_down_bytes, t.first_at, t.last_at, l.ended_at
FROM lease_traffic t
JOIN lease l ON l.id = t.lease_id
WHERE t.host_id = @host_id
ORDER BY t.last_at DESC, t.lease_id DESC, t.epoch DESC
LIMIT @max_rows;

-- name: DropOldTraffic :execrows
DELETE FROM lease_traffic WHERE last_at < statement_timestamp() - make_interval(secs => @keep::float8);
