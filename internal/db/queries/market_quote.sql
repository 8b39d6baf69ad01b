-- Quotes: prices with GPUs held behind them.

-- name: OpenQuotes :many
-- The rates of the open quotes of an org.
SELECT rate FROM quote WHERE org_id = @org_id AND state = 'held' AND expires_at > clock_timestamp();

-- name: HeldByQuotes :one
-- For how many seconds of the last hour the quotes of an org's circle held the one of these GPUs that they held longest.
SELECT coalesce(max(h.seconds), 0)::double precision AS seconds
FROM (
    SELECT sum(extract(epoch FROM least(coalesce(q.ended_at, q.expires_at), q.expires_at, clock_timestamp())
                                  - greatest(q.created_at, clock_timestamp() - interval '1 hour'))) AS seconds
    FROM quote q CROSS JOIN LATERAL unnest(q.gpu_ids) AS g(id)
    WHERE q.org_id = ANY (ARRAY(SELECT org_circle(@org_id, statement_timestamp() - interval '1 hour'))) AND q.created_at > statement_timestamp() - interval '1 hour 2 minutes' AND g.id = ANY(@gpus::uuid[])
    GROUP BY g.id
) h;

-- name: InsertQuote :one
INSERT INTO quote (id, org_id, user_id, spec, secrets, placement, gpu_ids, rate, unpaid, state, created_at, expires_at)
VALUES (@id, @org_id, @user_id, @spec, @secrets, @placement, @gpu_ids::uuid[], @rate, @unpaid, 'held', @created_at, @expires_at)
RETURNING created_at, expires_at;

-- name: GetQuote :one
SELECT id, org_id, user_id, spec, secrets, placement, state, cluster_id, created_at, expires_at, ended_at,
       (state = 'held' AND expires_at <= clock_timestamp())::boolean AS due
FROM quote
WHERE id = @id AND org_id = @org_id;

-- name: LockQuote :one
SELECT id, org_id, user_id, spec, secrets, placement, state, cluster_id, created_at, expires_at, ended_at,
       (state = 'held' AND expires_at <= clock_timestamp())::boolean AS due
FROM quote
WHERE id = @id AND org_id = @org_id
FOR NO KEY UPDATE;

-- name: EndQuote :exec
UPDATE quote SET state = @state, cluster_id = @cluster_id, ended_at = clock_timestamp(), secrets = NULL WHERE id = @id;

-- name: ExpireQuotes :many
-- scan: done
WITH due AS (
    SELECT id FROM quote WHERE state = 'held' AND expires_at <= statement_timestamp()
    ORDER BY expires_at LIMIT @max_rows FOR UPDATE SKIP LOCKED
)
UPDATE quote q SET state = 'expired', ended_at = q.expires_at, secrets = NULL
FROM due WHERE q.id = due.id
RETURNING q.id;

-- name: DropOldQuotes :execrows
-- scan: done
DELETE FROM quote WHERE id IN (
    SELECT q.id FROM quote q WHERE q.id < first_id(statement_timestamp() - interval '90 days') AND q.state <> 'held'
    ORDER BY q.id LIMIT @max_rows);
