-- name: ClaimIdempotencyKey :many
-- Takes the key, or takes over one that has expired. It waits while a twin holds the key in an open transaction; no row
-- means that the twin's answer stands.
INSERT INTO idempotency_key (principal, method, path, key, body_hmac, expires_at)
VALUES (@principal, @method, @path, @key, @body_hmac, clock_timestamp() + make_interval(secs => @life::float8))
ON CONFLICT (principal, method, path, key) DO UPDATE SET
    body_hmac = excluded.body_hmac, status = 0, response = NULL, sealed = false,
    created_at = clock_timestamp(), expires_at = excluded.expires_at
WHERE idempotency_key.expires_at <= clock_timestamp()
RETURNING key;

-- name: IdempotentAnswer :one
SELECT body_hmac, status, response, sealed FROM idempotency_key
WHERE principal = @principal AND method = @method AND path = @path AND key = @key;

-- name: StoreIdempotentAnswer :exec
UPDATE idempotency_key SET status = @status, response = @response, sealed = @sealed
WHERE principal = @principal AND method = @method AND path = @path AND key = @key;

-- name: DeleteExpiredIdempotencyKeys :execrows
DELETE FROM idempotency_key WHERE expires_at < statement_timestamp();
