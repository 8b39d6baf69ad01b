-- name: InsertEmailChange :exec
INSERT INTO email_change (secret_hash, user_id, was, address, expires_at)
VALUES (@secret_hash, @user_id, @was, @address, clock_timestamp() + make_interval(secs => @life_s::float8));

-- name: EmailChangeAddress :one
SELECT address FROM email_change WHERE secret_hash = @secret_hash AND user_id = @user_id AND expires_at > clock_timestamp();

-- name: TakeEmailChange :one
DELETE FROM email_change WHERE secret_hash = @secret_hash AND user_id = @user_id AND was = @was AND expires_at > statement_timestamp()
RETURNING address;

-- name: SetEmail :exec
UPDATE app_user SET email = @email, email_verified_at = clock_timestamp() WHERE id = @id;

-- name: DeleteEmailChangesOfUser :exec
DELETE FROM email_change WHERE user_id = $1;

-- name: DeleteOldEmailChanges :execrows
DELETE FROM email_change WHERE expires_at < statement_timestamp();
