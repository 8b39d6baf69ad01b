-- name: LockQuietClusters :many
-- scan: moves due_at by KeepCalm
-- Due clusters whose own rows ask for nothing; the watchdog looks at the others one by one. SKIP LOCKED lets replicas share the work.
SELECT id FROM cluster
WHERE due_at <= statement_timestamp() AND full_look_at > statement_timestamp() AND state = 'running' AND ended_at IS NULL AND reason = ''
  AND money_reason = '' AND replace_until IS NULL AND runway_told_s = 0 AND run_until > statement_timestamp() + make_interval(secs => sqlc.arg(step_s)::float8)
  AND (max_duration_s IS NULL OR running_at + make_interval(secs => max_duration_s) > statement_timestamp() + make_interval(secs => sqlc.arg(look_s)::float8))
ORDER BY due_at
LIMIT @max_rows
FOR UPDATE SKIP LOCKED;

-- name: KeepCalm :many
-- Of clusters that the transaction has locked, those that are calm: every rank runs and its host reported it well a moment ago, no time
-- is in doubt or pending, nothing waits to be posted for long, and the org's credit lasts for more than a day. They are looked at again
-- when any of it may have changed. The answer is through when each is proven well.
WITH burn AS (
    SELECT b.org_id, sum(b.rate)::bigint AS rate
    FROM cluster b
    WHERE b.org_id IN (SELECT q.org_id FROM cluster q WHERE q.id = ANY (@ids::uuid[])) AND b.ended_at IS NULL AND b.state IN ('running', 'degraded')
    GROUP BY b.org_id
), calm AS (
    SELECT c.id, c.node_count, min(s.last_good_ms) AS good_ms
    FROM cluster c
    JOIN burn ON burn.org_id = c.org_id
    JOIN ledger_account a ON a.kind = 'renter_wallet' AND a.owner = c.org_id AND a.currency = c.currency
    JOIN ledger_balance b ON b.account_id = a.id AND b.amount + b.credit - b.reserved > burn.rate * 24 * 1000 -- nano-units; rates are micro-units per hour
    JOIN cluster_window w ON w.cluster_id = c.id AND w.closed_ms IS NULL AND w.limit_ms IS NULL AND w.doubt_from_ms IS NULL
    JOIN node n ON n.cluster_id = c.id
    JOIN node_status s ON s.node_id = n.id
    JOIN lease l ON l.id = n.lease_id
    JOIN lease_meter m ON m.lease_id = l.id
    JOIN host h ON h.id = n.host_id
    WHERE c.id = ANY (@ids::uuid[])
      AND NOT EXISTS (SELECT FROM cluster_window p WHERE p.cluster_id = c.id AND p.closed_ms IS NULL AND p.n <> w.n)
      AND NOT EXISTS (SELECT FROM undecided_span u WHERE u.cluster_id = c.id AND u.to_ms IS NULL)
      AND NOT EXISTS (SELECT FROM node_replacement r JOIN lease o ON o.id = r.lost_lease WHERE r.cluster_id = c.id AND o.gone_at IS NULL)
    GROUP BY c.id, c.node_count
    HAVING count(*) = c.node_count AND bool_and(
        n.state = 'ready' AND n.started_at IS NOT NULL AND n.exit_code IS NULL AND n.reclaim_told IS NULL
        AND s.epoch = n.epoch AND s.good AND s.trouble = '' AND s.peers_down = '{}'
        AND s.reported_at > clock_timestamp() - make_interval(secs => sqlc.arg(lost_s)::float8) AND s.last_good_ms > extract(epoch FROM clock_timestamp()) * 1000 - sqlc.arg(lost_s)::float8 * 1000
        AND l.required AND l.ended_at IS NULL AND l.run_until > clock_timestamp() + make_interval(secs => sqlc.arg(step_s)::float8)
        AND NOT m.frozen AND (m.unposted_since_ms = 0 OR m.unposted_since_ms > extract(epoch FROM clock_timestamp()) * 1000 - sqlc.arg(post_ms)::bigint)
        AND h.reclaim_at IS NULL AND h.capped_until IS NULL
        AND NOT EXISTS (SELECT FROM rank_gap g WHERE g.lease_id = l.id AND g.to_ms > w.confirmed_until_ms))
)
UPDATE cluster c
SET due_at = least(clock_timestamp() + make_interval(secs => sqlc.arg(look_s)::float8), to_timestamp(calm.good_ms / 1000.0) + make_interval(secs => sqlc.arg(lost_s)::float8 + 0.001))
FROM calm
WHERE c.id = calm.id
RETURNING c.id, c.node_count, calm.good_ms::bigint AS good_ms;

-- name: EndCalm :exec
-- Of clusters that the transaction has locked: the watchdog looks at them one by one before it asks again whether they are calm.
UPDATE cluster SET full_look_at = 'epoch' WHERE id = ANY (@ids::uuid[]);
