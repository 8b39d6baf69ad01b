-- For how long organisations hold GPUs without paying, from the claim until every rank runs or the start has failed.

-- name: OpenStarts :many
-- The starts under way of an org's circle, the oldest first.
SELECT c.start_from, (c.node_count * c.gpus_per_node)::integer AS gpus, c.rate, (c.org_id = @org_id)::boolean AS own
FROM cluster c
WHERE c.org_id = ANY (ARRAY(SELECT org_circle(@org_id, statement_timestamp() - make_interval(secs => @window_s::bigint))))
  AND c.state = 'provisioning' AND c.start_from IS NOT NULL
ORDER BY c.start_from LIMIT 2000;

-- name: HeldStarts :many
-- What starts of an org's circle held that ended within a window, by five minutes.
SELECT max(s.ended_at)::timestamptz AS ended_at, sum(s.gpu_ms)::bigint AS gpu_ms, sum(s.value)::bigint AS value,
       (s.org_id = @org_id)::boolean AS own
FROM start_hold s
WHERE s.org_id = ANY (ARRAY(SELECT org_circle(@org_id, statement_timestamp() - make_interval(secs => @window_s::bigint))))
  AND s.ended_at > statement_timestamp() - make_interval(secs => @window_s::bigint)
GROUP BY date_bin('5 minutes', s.ended_at, 'epoch'), (s.org_id = @org_id)::boolean;

-- name: HeldQuotes :many
-- What quotes of an org's circle held that ended within a window, by five minutes; one that is open counts as if it held its GPUs until
-- it expires. The quote that becomes a cluster is left out.
SELECT max(q.until)::timestamptz AS ended_at, sum(q.gpus * q.ms)::bigint AS gpu_ms,
       sum(q.rate / 3600 * q.ms + q.rate % 3600 * q.ms / 3600)::bigint AS value, q.own
FROM (SELECT least(coalesce(x.ended_at, x.expires_at), x.expires_at) AS until, x.rate, cardinality(x.gpu_ids) AS gpus,
             (x.org_id = @org_id)::boolean AS own,
             (extract(epoch FROM least(coalesce(x.ended_at, x.expires_at), x.expires_at) - x.created_at) * 1000)::bigint AS ms
      FROM quote x
      WHERE x.org_id = ANY (ARRAY(SELECT org_circle(@org_id, statement_timestamp() - make_interval(secs => @window_s::bigint))))
        AND x.created_at > statement_timestamp() - make_interval(secs => @window_s::bigint) - interval '2 minutes'
        AND x.id IS DISTINCT FROM @quote_id) q
WHERE q.until > statement_timestamp() - make_interval(secs => @window_s::bigint)
GROUP BY date_bin('5 minutes', q.until, 'epoch'), q.own;

-- name: HeldUploads :many
-- Ended leases of an org's circle that still hold their GPUs, or disk that is worth some, while their hosts upload what they wrote:
-- what they hold in thousandths of GPUs, and since when it counts, free_s seconds after their end at the earliest.
SELECT greatest(l.gpus_free_at, l.ended_at + make_interval(secs => @free_s::bigint))::timestamptz AS since, l.gpu_count,
       CASE WHEN l.gpus_free_at IS NULL THEN 1000 * l.gpu_count ELSE l.flush_gpu_thousandths END::bigint AS gpu_thousandths,
       p.rate, (l.renter_org_id = @org_id)::boolean AS own
FROM lease l
CROSS JOIN LATERAL (SELECT x.rate FROM lease_price x WHERE x.lease_id = l.id ORDER BY x.from_ms DESC LIMIT 1) p
WHERE l.renter_org_id = ANY (ARRAY(SELECT org_circle(@org_id, statement_timestamp() - make_interval(secs => @window_s::bigint))))
  AND l.gone_at IS NULL AND coalesce(l.gpus_free_at, l.ended_at) > statement_timestamp() - make_interval(secs => @flush_s::bigint)
  AND l.ended_at < statement_timestamp() - make_interval(secs => @free_s::bigint)
  AND (EXISTS (SELECT FROM volume_mount m WHERE m.cluster_id = l.cluster_id AND m.mode <> 'ro')
       OR EXISTS (SELECT FROM bucket_mount b WHERE b.cluster_id = l.cluster_id AND b.mode <> 'ro'))
ORDER BY l.ended_at LIMIT 2000;

-- name: PaidLately :one
-- What hosts earned from an org and from its circle within a window, in whole hours, and in seven days, less what they gave back.
SELECT coalesce(sum(p.net) FILTER (WHERE p.late), 0)::bigint AS lately, coalesce(sum(p.net), 0)::bigint AS week,
       coalesce(sum(p.net) FILTER (WHERE p.late AND p.own), 0)::bigint AS own_lately,
       coalesce(sum(p.net) FILTER (WHERE p.own), 0)::bigint AS own_week
FROM (SELECT e.earned - e.returned AS net, e.hour > statement_timestamp() - make_interval(secs => @window_s::bigint) AS late,
             e.payer_org_id = @org_id::uuid AS own
      FROM operator_earning_hour e
      WHERE e.payer_org_id = ANY (ARRAY(SELECT org_circle(@org_id::uuid, statement_timestamp() - make_interval(secs => @window_s::bigint))))
        AND e.currency = @currency AND e.hour > statement_timestamp() - interval '7 days') p;

-- name: NewStarts :many
-- GPUs by model that starts under way and quotes hold which no payment covers, of all organisations. The quote that becomes a cluster is
-- left out.
SELECT h.gpu_model, sum(h.gpus)::bigint AS gpus
FROM (SELECT l.gpu_model, l.gpu_count AS gpus
      FROM cluster c JOIN lease l ON l.cluster_id = c.id
      WHERE c.state = 'provisioning' AND c.start_from IS NOT NULL AND c.start_new AND l.ended_at IS NULL
      UNION ALL
      SELECT g.model, 1
      FROM quote q CROSS JOIN LATERAL unnest(q.gpu_ids) AS u (id) JOIN gpu g ON g.id = u.id
      WHERE q.state = 'held' AND q.unpaid AND q.expires_at > statement_timestamp() AND q.id IS DISTINCT FROM @quote_id) h
GROUP BY h.gpu_model;

-- name: InsertStartHold :exec
-- A start that ended, with what counts of it.
INSERT INTO start_hold (org_id, cluster_id, ended_at, held_ms, gpu_ms, value, reason)
VALUES (@org_id, @cluster_id, @ended_at, @held_ms, @gpu_ms, @value, @reason);

-- name: InsertExcusedStart :exec
-- A start that ended by an operator's failure. The first one of an org and an operator in a while counts for nothing, later ones
-- count with gpu_ms.
INSERT INTO start_hold (org_id, cluster_id, ended_at, held_ms, gpu_ms, value, reason, excused_by)
VALUES (@org_id, @cluster_id, @ended_at, @held_ms,
        (SELECT CASE WHEN count(*) > 0 THEN @gpu_ms::bigint ELSE 0 END FROM start_hold s
         WHERE s.org_id = @org_id AND s.excused_by = @excused_by AND s.ended_at > @since),
        (SELECT CASE WHEN count(*) > 0 THEN @value::bigint ELSE 0 END FROM start_hold s
         WHERE s.org_id = @org_id AND s.excused_by = @excused_by AND s.ended_at > @since),
        @reason, @excused_by);

-- name: MergeStartHolds :execrows
-- scan: done
-- Puts the starts of an org that ended in the same five minutes into one row, so that a rent reads few rows however many starts there
-- were. Those that an operator excuses stay for a day, because they decide whether it excuses more.
WITH old AS (
    DELETE FROM start_hold WHERE id IN (
        SELECT s.id FROM start_hold s
        WHERE s.cluster_id IS NOT NULL AND s.ended_at < statement_timestamp() - interval '15 minutes'
          AND (s.excused_by IS NULL OR s.ended_at < statement_timestamp() - interval '25 hours')
        ORDER BY s.ended_at LIMIT 5000
        FOR UPDATE SKIP LOCKED)
    RETURNING org_id, starts, ended_at, held_ms, gpu_ms, value
)
INSERT INTO start_hold (org_id, starts, ended_at, held_ms, gpu_ms, value)
SELECT o.org_id, sum(o.starts)::bigint, max(o.ended_at), sum(o.held_ms)::bigint, sum(o.gpu_ms)::bigint, sum(o.value)::bigint
FROM old o GROUP BY o.org_id, date_bin('5 minutes', o.ended_at, 'epoch');

-- name: DropOldStartHolds :execrows
-- scan: done
DELETE FROM start_hold WHERE id IN (
    SELECT s.id FROM start_hold s WHERE s.ended_at < statement_timestamp() - interval '30 days' LIMIT 5000);

-- name: StartHoldsByOrg :many
-- scan: page
-- What organisations held without paying in some days, the most first.
SELECT s.org_id, o.name, sum(s.starts)::bigint AS starts, sum(s.held_ms)::bigint AS held_ms, sum(s.gpu_ms)::bigint AS gpu_ms,
       sum(s.value)::bigint AS value, max(s.ended_at)::timestamptz AS last_at
FROM start_hold s JOIN org o ON o.id = s.org_id
WHERE s.ended_at > statement_timestamp() - interval '1 day' * @days::integer
GROUP BY s.org_id, o.name ORDER BY held_ms DESC, s.org_id LIMIT @max_rows;
