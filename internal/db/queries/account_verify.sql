-- name: InsertEmailVerification :exec
INSERT INTO email_verification (secret_hash, user_id, address, expires_at)
VALUES (@secret_hash, @user_id, @address, clock_timestamp() + make_interval(secs => @life_s::float8));

-- name: UseEmailVerification :one
UPDATE email_verification SET used_at = clock_timestamp()
WHERE secret_hash = $1 AND used_at IS NULL AND expires_at > clock_timestamp()
RETURNING user_id, address;

-- name: VerifyEmail :execrows
-- No row: the user has another address by now.
UPDATE app_user SET email_verified_at = coalesce(email_verified_at, clock_timestamp()) WHERE id = @id AND email = @email;

-- name: EmailVerified :one
SELECT (email_verified_at IS NOT NULL)::boolean FROM app_user WHERE id = $1;

-- name: DeleteOldVerifications :execrows
DELETE FROM email_verification WHERE expires_at < statement_timestamp() - interval '7 days';
