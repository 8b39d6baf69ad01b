-- When the control plane could receive from its hosts.

-- name: LockPulse :many
-- The last pulse of every listener, and PostgreSQL's clock, unix ms. The rows are locked: pulses of several replicas
-- are taken one after the other.
SELECT p.listener, p.first_ms, p.last_ms, p.control_epoch FROM pulse p ORDER BY p.listener FOR UPDATE;

-- name: PutPulse :exec
INSERT INTO pulse (listener, first_ms, last_ms, control_epoch) VALUES (@listener, @now_ms, @now_ms, @control_epoch)
ON CONFLICT (listener) DO UPDATE SET last_ms = greatest(pulse.last_ms, excluded.last_ms), control_epoch = excluded.control_epoch;

-- name: InsertDeafGap :exec
INSERT INTO deaf_gap (listener, from_ms, to_ms, cause) VALUES (@listener, @from_ms, @to_ms, @cause) ON CONFLICT DO NOTHING;

-- name: ListenerSilence :many
-- The hosts with leases that a listener received from lately, by operator, those of them that fell silent, and the first moment of that,
-- unix ms.
WITH recent AS (
    SELECT h.org_id, floor(extract(epoch FROM s.last_sync_at) * 1000)::bigint AS at_ms
    FROM host_status s JOIN host h ON h.id = s.host_id
    WHERE s.nats_server = @listener AND s.last_sync_at > clock_timestamp() - interval '70 seconds'
      AND EXISTS (SELECT FROM lease l WHERE l.host_id = s.host_id AND l.ended_at IS NULL)
)
SELECT r.org_id, count(*) AS hosts, coalesce(sum(CASE WHEN r.at_ms < @silent_ms::bigint THEN 1 ELSE 0 END), 0)::bigint AS silent,
       coalesce(min(CASE WHEN r.at_ms < @silent_ms::bigint THEN r.at_ms END), 0)::bigint AS since_ms
FROM recent r GROUP BY r.org_id;

-- name: CirclesOf :many
-- For each of some orgs the first one of its circle: equal for those of one circle.
SELECT o.id::uuid AS org_id, (SELECT min(c.id::text) FROM (SELECT org_circle(o.id, statement_timestamp() - interval '7 days') AS id) c)::text AS circle
FROM unnest(@orgs::uuid[]) AS o (id);

-- name: MassGapSince :one
-- Whether a listener has a gap of silent hosts that ended after a moment, unix ms.
SELECT EXISTS (SELECT FROM deaf_gap g WHERE g.listener = @listener AND g.cause = 'mass_silence' AND g.to_ms > @since_ms::bigint);

-- name: DeafTime :many
-- When the control plane could not receive from the hosts of a listener, as far as that ends after @since_ms. A gap that lasts ends
-- in the far future.
SELECT g.listener, g.from_ms, g.to_ms FROM deaf_gap g WHERE g.to_ms > @since_ms
UNION ALL
SELECT p.listener, p.last_ms, 9223372036854775807
FROM pulse p
WHERE p.last_ms < floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - @gap_ms::bigint
  AND NOT EXISTS (SELECT FROM deaf_gap g WHERE g.listener = p.listener AND g.from_ms = p.last_ms);

-- name: DropPulses :exec
-- Deletes listeners that are gone, once their gap is recorded.
DELETE FROM pulse WHERE listener = ANY (@listeners::text[]);

-- name: PruneDeafGaps :execrows
-- scan: done
DELETE FROM deaf_gap WHERE (listener, from_ms, to_ms) IN (
    SELECT g.listener, g.from_ms, g.to_ms FROM deaf_gap g
    WHERE g.to_ms < floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 90 * 86400000::bigint LIMIT 1000);

-- name: Listeners :many
-- Every listener that received, or may have received, from hosts.
SELECT p.listener::text AS listener FROM pulse p UNION SELECT s.nats_server FROM host_status s WHERE s.nats_server <> '' ORDER BY 1;

-- name: HostsUnderLease :one
SELECT count(DISTINCT host_id) FROM lease WHERE ended_at IS NULL;

-- name: RequireFullReports :execrows
UPDATE host SET needs_full_report = true WHERE state = 'active' AND NOT needs_full_report;

-- name: CountHosts :one
-- The hosts that are not retired, and those of them that are connected and have reported within the last minute.
SELECT count(*) AS hosts,
       count(*) FILTER (WHERE s.connected AND s.last_sync_at > clock_timestamp() - interval '1 minute') AS connected
FROM host h LEFT JOIN host_status s ON s.host_id = h.id
WHERE h.state <> 'retired';
