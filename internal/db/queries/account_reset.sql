-- name: InsertPasswordReset :exec
INSERT INTO password_reset (secret_hash, user_id, address, expires_at)
VALUES (@secret_hash, @user_id, @address, clock_timestamp() + make_interval(secs => @life_s::float8));

-- name: PasswordResetUser :one
-- Whose password a link sets, if it can still be used. The user's row is locked.
SELECT u.id, u.email, (u.email_verified_at IS NOT NULL)::boolean AS verified
FROM password_reset r JOIN app_user u ON u.id = r.user_id AND u.email = r.address
WHERE r.secret_hash = $1 AND r.used_at IS NULL AND r.expires_at > clock_timestamp() FOR UPDATE OF u;

-- name: DeleteSSHKeysOfUser :execrows
DELETE FROM ssh_key WHERE user_id = $1;

-- name: UsePasswordResets :execrows
-- Uses up all links of a user: one new password, one link.
UPDATE password_reset SET used_at = clock_timestamp() WHERE user_id = $1 AND used_at IS NULL;

-- name: DeleteOldPasswordResets :execrows
DELETE FROM password_reset WHERE expires_at < statement_timestamp() - interval '7 days';
