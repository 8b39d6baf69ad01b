-- name: InsertStripeEvent :execrows
INSERT INTO stripe_event (id, type, object_id, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO NOTHING;

-- name: ClaimStripeEvents :many
-- scan: moves next_at
UPDATE stripe_event e
SET attempts = e.attempts + 1, next_at = clock_timestamp() + make_interval(secs => least(3600, 30 * power(2, least(e.attempts, 7))))
WHERE e.id IN (SELECT d.id FROM stripe_event d WHERE d.processed_at IS NULL AND d.next_at <= statement_timestamp()
               ORDER BY d.next_at LIMIT $1 FOR UPDATE SKIP LOCKED)
RETURNING e.id, e.type, e.object_id, e.attempts;

-- name: FinishStripeEvent :exec
UPDATE stripe_event SET processed_at = clock_timestamp(), error = $2 WHERE id = $1;

-- name: FailStripeEvent :exec
UPDATE stripe_event SET error = @error, next_at = clock_timestamp() + make_interval(secs => @wait_s::float8) WHERE id = @id;

-- name: DropOldStripeEvents :execrows
-- Stripe sends an event again for 3 days at most, and the signature of an older one is refused.
-- scan: done
DELETE FROM stripe_event WHERE id IN (
    SELECT e.id FROM stripe_event e
    WHERE e.received_at < statement_timestamp() - interval '90 days' AND e.processed_at < statement_timestamp() - interval '90 days'
    LIMIT @max_rows);
