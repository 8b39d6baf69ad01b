-- Sealing clusters' secrets again, with another secret of the platform's.

-- name: PutSealProgress :exec
INSERT INTO seal_progress (mark, resealed, remaining) VALUES (@mark, @resealed, @remaining)
ON CONFLICT (one) DO UPDATE
SET passed_at = clock_timestamp(), remaining = excluded.remaining, mark = excluded.mark,
    began_at = CASE WHEN seal_progress.mark = excluded.mark THEN seal_progress.began_at ELSE clock_timestamp() END,
    resealed = CASE WHEN seal_progress.mark = excluded.mark THEN seal_progress.resealed ELSE 0 END + excluded.resealed;

-- name: SealProgress :one
SELECT mark, began_at, passed_at, resealed, remaining FROM seal_progress;
