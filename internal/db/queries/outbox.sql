-- Requests to Stripe, which are sent later.

-- name: InsertOutbox :execrows
-- The process that writes a row sends it, in order with its other rows; it is due for others when that process must have died.
INSERT INTO stripe_outbox (id, kind, ref, params, idem_key, state, next_at)
VALUES ($1, $2, $3, $4, $5, 'pending', clock_timestamp() + interval '5 seconds')
ON CONFLICT (idem_key) DO NOTHING;

-- name: DueOutboxKinds :many
-- Kinds of rows of which some are due, and how many. While sending is paused, only kinds that move no money are due.
SELECT d.kind, count(*) AS due FROM stripe_outbox d
WHERE d.state IN ('pending', 'sent', 'unknown') AND d.next_at <= clock_timestamp()
  AND (d.kind = ANY(@no_money::text[]) OR NOT EXISTS (SELECT FROM sending_pause))
GROUP BY d.kind
ORDER BY kind;

-- name: ClaimNextOutbox :one
-- scan: moves next_at
-- Takes the row of a kind that has been due for longest, for as long as one attempt may last. Rows that other senders are
-- taking at this moment are skipped. While sending is paused, only rows that move no money are taken.
UPDATE stripe_outbox o
SET state = 'sent', attempts = attempts + 1, first_sent_at = coalesce(first_sent_at, clock_timestamp()),
    next_at = clock_timestamp() + make_interval(secs => @lease_s::float8)
WHERE o.id = (SELECT d.id FROM stripe_outbox d
              WHERE d.kind = @kind AND d.state IN ('pending', 'sent', 'unknown') AND d.next_at <= statement_timestamp()
                AND (d.kind = ANY(@no_money::text[]) OR NOT EXISTS (SELECT FROM sending_pause))
              ORDER BY d.next_at, d.id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, kind, ref, params, idem_key, state, attempts, next_at, result_id, error, first_sent_at, created_at, done_at, mismatch,
          extract(epoch FROM clock_timestamp() - least(first_sent_at, created_at))::float8 AS age_s;

-- name: ClaimOutbox :one
-- Takes a row for as long as one attempt may last; no row when another sender has it. One that was never sent need not
-- be due. While sending is paused, only a row that moves no money is taken.
UPDATE stripe_outbox d
SET state = 'sent', attempts = attempts + 1, first_sent_at = coalesce(first_sent_at, clock_timestamp()),
    next_at = clock_timestamp() + make_interval(secs => @lease_s::float8)
WHERE id = @id AND state IN ('pending', 'sent', 'unknown') AND (next_at <= clock_timestamp() OR attempts = 0)
  AND (d.kind = ANY(@no_money::text[]) OR NOT EXISTS (SELECT FROM sending_pause))
RETURNING id, kind, ref, params, idem_key, state, attempts, next_at, result_id, error, first_sent_at, created_at, done_at, mismatch,
          extract(epoch FROM clock_timestamp() - least(first_sent_at, created_at))::float8 AS age_s;

-- name: PostponeOutbox :exec
UPDATE stripe_outbox
SET state = @state, error = @error, next_at = clock_timestamp() + make_interval(secs => @wait_s::float8), mismatch = mismatch OR @mismatch
WHERE id = @id AND state = 'sent';

-- name: FinishOutbox :exec
UPDATE stripe_outbox SET state = @state, result_id = @result_id, error = @error, done_at = clock_timestamp()
WHERE id = @id AND state NOT IN ('done', 'failed');

-- name: OutboxKind :one
SELECT kind FROM stripe_outbox WHERE id = $1;

-- name: OutboxByKey :one
SELECT id, kind, state, result_id FROM stripe_outbox WHERE idem_key = $1;

-- name: InsertDoneOutbox :exec
INSERT INTO stripe_outbox (id, kind, ref, params, idem_key, state, result_id, done_at)
VALUES (@id, @kind, @ref, @params, @idem_key, 'done', @result_id, clock_timestamp())
ON CONFLICT (idem_key) DO NOTHING;

-- name: OutboxBefore :one
-- Whether an earlier row of the same object is still to be sent.
SELECT EXISTS (SELECT FROM stripe_outbox o JOIN stripe_outbox me ON me.idem_key = @key
               WHERE o.ref = me.ref AND o.kind = ANY(@kinds::text[]) AND o.id < me.id AND o.state IN ('pending', 'sent', 'unknown'));
