-- name: InsertEmailVerification :exec
INSERT INTO email_verification (secret_hash, user_id, address, expires_at)
VALUES (@secret_hash, @user_id, @address, clock_timestamp() + make_interval(secs => @life_s::float8));

-- name: EmailVerificationUser :one
-- Whose address a link verifies, if it can still be used.
SELECT u.id, u.email, u.password_hash
FROM email_verification v JOIN app_user u ON u.id = v.user_id AND u.email = v.address
WHERE v.secret_hash = $1 AND v.used_at IS NULL AND v.expires_at > clock_timestamp();

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
