-- name: RecordDeadLetter :one
-- Counts a failed attempt.
INSERT INTO dead_letter (queue, ref, error) VALUES (@queue, @ref, @error)
ON CONFLICT (queue, ref) DO UPDATE SET attempts = dead_letter.attempts + 1, error = excluded.error, failed_at = clock_timestamp()
RETURNING attempts, extract(epoch FROM clock_timestamp() - failing_since)::float8 AS failing_s, (parked_at IS NOT NULL)::boolean AS parked;

-- name: ParkDeadLetter :execrows
UPDATE dead_letter SET parked_at = clock_timestamp() WHERE queue = @queue AND ref = @ref AND parked_at IS NULL;

-- name: DeleteDeadLetter :exec
DELETE FROM dead_letter WHERE queue = @queue AND ref = @ref;

-- name: ListDeadLetters :many
-- scan: page
SELECT queue, ref, attempts, error, failing_since, failed_at, parked_at FROM dead_letter
ORDER BY failing_since, queue, ref LIMIT @max_rows;

-- name: DeleteStaleDeadLetters :execrows
-- A row that still fails is retried at least once a day: what did not fail for two days was processed, or is gone.
DELETE FROM dead_letter WHERE failed_at < statement_timestamp() - interval '2 days';
