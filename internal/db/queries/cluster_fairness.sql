-- Facts about gangs and what is decided from them.

-- name: InsertRankGaps :exec
INSERT INTO rank_gap (lease_id, epoch, from_ms, to_ms, unwell)
SELECT unnest(@leases::uuid[]), unnest(@epochs::integer[]), unnest(@from_ms::bigint[]), unnest(@to_ms::bigint[]), unnest(@unwell::boolean[])
ON CONFLICT DO NOTHING;

-- name: UnjudgedGaps :many
-- Time without attestation of a cluster's present leases after the moment up to which its open window is confirmed.
SELECT g.lease_id, g.from_ms, g.to_ms
FROM cluster_window w JOIN node n ON n.cluster_id = w.cluster_id JOIN rank_gap g ON g.lease_id = n.lease_id
WHERE w.cluster_id = @cluster_id AND w.closed_ms IS NULL AND w.limit_ms IS NULL AND g.to_ms > w.confirmed_until_ms;

-- name: InsertLostGap :exec
-- The time since the last good report of a node's lease, before another lease takes its place.
INSERT INTO rank_gap (lease_id, epoch, from_ms, to_ms)
SELECT n.lease_id, n.epoch, s.last_good_ms, 9223372036854775807
FROM node n JOIN node_status s ON s.node_id = n.id
WHERE n.id = @id
ON CONFLICT DO NOTHING;

-- name: InsertSilences :exec
INSERT INTO silence (host_id, from_ms, to_ms, kind)
SELECT unnest(@hosts::uuid[]), unnest(@from_ms::bigint[]), unnest(@to_ms::bigint[]), unnest(@kinds::text[])
ON CONFLICT DO NOTHING;

-- name: InsertStrike :exec
INSERT INTO gang_strike (host_id, cluster_id, against_org, kind, at) VALUES (@host_id, @cluster_id, sqlc.narg(against_org), @kind, @at);

-- name: BanPair :exec
INSERT INTO pair_ban (a, b, until) VALUES (@a, @b, @until) ON CONFLICT (a, b) DO UPDATE SET until = greatest(pair_ban.until, excluded.until);

-- name: OpenUndecided :many
SELECT epoch, low, high, from_ms FROM undecided_span WHERE cluster_id = @cluster_id AND to_ms IS NULL ORDER BY low, high;

-- name: StartUndecided :exec
INSERT INTO undecided_span (cluster_id, epoch, low, high, from_ms) VALUES (@cluster_id, @epoch, @low, @high, @from_ms) ON CONFLICT DO NOTHING;

-- name: EndUndecided :exec
UPDATE undecided_span SET to_ms = greatest(from_ms, @to_ms::bigint)
WHERE cluster_id = @cluster_id AND epoch = @epoch AND low = @low AND high = @high AND to_ms IS NULL;

-- name: UndecidedWithin :many
SELECT from_ms, to_ms FROM undecided_span
WHERE cluster_id = @cluster_id AND from_ms < @until_ms AND coalesce(to_ms, 9223372036854775807) > @since_ms::bigint
ORDER BY from_ms;

-- name: LeasesWithin :many
-- The leases of a cluster that lived between two moments, with what is needed to judge whether their ranks were up.
SELECT l.id, l.rank, l.host_id, l.host_org_id, l.epoch, l.created_at, l.ended_at, l.settled_at, (n.lease_id = l.id)::boolean AS current,
       s.last_good_ms, s.peers_down, s.peers_from_ms, hs.protocol, n.exit_code, n.exit_at, hs.nats_server AS listener, hs.connected_at,
       coalesce((SELECT max(g.end_ms) FROM usage_segment g WHERE g.lease_id = l.id), 0)::bigint AS proven_ms,
       EXISTS (SELECT FROM usage_segment g WHERE g.lease_id = l.id AND g.epoch = l.epoch AND g.final) AS final,
       -- Segments are numbered from 1. One without its predecessor came before it: what lies between may still arrive.
       EXISTS (SELECT FROM usage_segment g
               WHERE g.lease_id = l.id AND g.end_ms > (extract(epoch FROM @since_at::timestamptz) * 1000)::bigint AND g.seq > 1
                 AND NOT EXISTS (SELECT FROM usage_segment p WHERE p.lease_id = g.lease_id AND p.epoch = g.epoch
                                 AND p.boot_id = g.boot_id AND p.seq = g.seq - 1)) AS has_hole
FROM lease l
JOIN node n ON n.id = l.node_id
JOIN node_status s ON s.node_id = n.id
JOIN host_status hs ON hs.host_id = l.host_id
WHERE l.cluster_id = @cluster_id AND l.created_at < @until_at::timestamptz AND (l.ended_at IS NULL OR l.ended_at > @since_at::timestamptz)
ORDER BY l.rank, l.created_at;

-- name: RankGapsWithin :many
SELECT lease_id, from_ms, to_ms, unwell FROM rank_gap
WHERE lease_id = ANY (@leases::uuid[]) AND from_ms < @until_ms AND to_ms > @since_ms
ORDER BY lease_id, from_ms;

-- name: SignedWithin :many
-- Signed segments in which the rank was up. With facts, the host itself reports what it did not receive.
SELECT lease_id, start_ms, end_ms, (facts IS NOT NULL)::boolean AS has_facts FROM usage_segment
WHERE lease_id = ANY (@leases::uuid[]) AND start_ms < @until_ms AND end_ms > @since_ms AND up
ORDER BY lease_id, start_ms;

-- name: DeafSpansWithin :many
SELECT lease_id, peer, from_ms, to_ms, received_at FROM deaf_span
WHERE lease_id = ANY (@leases::uuid[]) AND from_ms < @until_ms AND to_ms > @since_ms
ORDER BY lease_id, peer, from_ms;

-- name: SilencesWithin :many
SELECT host_id, from_ms, to_ms FROM silence
WHERE host_id = ANY (@hosts::uuid[]) AND from_ms < @until_ms AND to_ms > @since_ms
ORDER BY host_id, from_ms;

-- name: InsertSuspension :exec
INSERT INTO suspension (cluster_id, n, from_ms, to_ms, class, culprits)
SELECT @cluster_id, coalesce(max(n), 0) + 1, @from_ms, @to_ms, @class, @culprits::uuid[] FROM suspension WHERE cluster_id = @cluster_id;

-- name: Suspensions :many
-- Time of a cluster's runs that is not billed, with the ranks and hosts to blame.
SELECT s.n, s.from_ms, s.to_ms, s.class, s.culprits
FROM suspension s WHERE s.cluster_id = @cluster_id ORDER BY s.from_ms, s.n;

-- name: DropOldStrikes :execrows
-- scan: done
DELETE FROM gang_strike WHERE id IN (SELECT g.id FROM gang_strike g WHERE g.at < statement_timestamp() - interval '90 days' LIMIT 1000);

-- name: DropOldBans :execrows
DELETE FROM pair_ban WHERE until < statement_timestamp();

-- name: DropOldSilences :execrows
-- scan: done
DELETE FROM silence WHERE (host_id, from_ms, to_ms, kind) IN (
    SELECT s.host_id, s.from_ms, s.to_ms, s.kind FROM silence s WHERE s.recorded_at < statement_timestamp() - interval '90 days' LIMIT 1000);

-- name: DoubtNow :one
-- Since when a cluster is not billed because a rank is in doubt, and since when ranks dispute; unix ms, 0: not so.
SELECT coalesce((SELECT max(w.doubt_from_ms) FROM cluster_window w WHERE w.cluster_id = @cluster_id AND w.closed_ms IS NULL AND w.limit_ms IS NULL), 0)::bigint AS doubt_ms,
       coalesce((SELECT min(u.from_ms) FROM undecided_span u WHERE u.cluster_id = @cluster_id AND u.to_ms IS NULL), 0)::bigint AS disputed_ms,
       ARRAY(SELECT u.low FROM undecided_span u WHERE u.cluster_id = @cluster_id AND u.to_ms IS NULL
             UNION SELECT u.high FROM undecided_span u WHERE u.cluster_id = @cluster_id AND u.to_ms IS NULL ORDER BY 1)::integer[] AS disputed;
