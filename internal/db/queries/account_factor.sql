-- name: PutTOTP :execrows
-- Sets up codes that are not in use yet. No row: they are in use.
INSERT INTO user_totp (user_id, secret) VALUES (@user_id, @secret)
ON CONFLICT (user_id) DO UPDATE SET secret = excluded.secret, last_step = 0, created_at = clock_timestamp()
WHERE user_totp.confirmed_at IS NULL;

-- name: LockTOTP :one
SELECT secret, last_step, (confirmed_at IS NOT NULL)::boolean AS confirmed FROM user_totp WHERE user_id = $1 FOR UPDATE;

-- name: HasTOTP :one
SELECT EXISTS (SELECT FROM user_totp WHERE user_id = $1 AND confirmed_at IS NOT NULL);

-- name: AcceptTOTP :exec
UPDATE user_totp SET last_step = @step, confirmed_at = coalesce(confirmed_at, clock_timestamp()) WHERE user_id = @user_id;

-- name: DeleteTOTP :execrows
DELETE FROM user_totp WHERE user_id = $1;

-- name: TOTPSecrets :many
-- scan: in order
SELECT user_id, secret FROM user_totp WHERE user_id > @after ORDER BY user_id LIMIT @max_rows;

-- name: ResealTOTP :execrows
UPDATE user_totp SET secret = @fresh WHERE user_id = @user_id AND secret = @sealed;

-- name: InsertRecoveryCodes :exec
INSERT INTO recovery_code (user_id, code_hash) SELECT @user_id, unnest(@hashes::bytea[]);

-- name: UseRecoveryCode :execrows
UPDATE recovery_code SET used_at = clock_timestamp() WHERE user_id = @user_id AND code_hash = @code_hash AND used_at IS NULL;

-- name: CountRecoveryCodes :one
SELECT count(*) FROM recovery_code WHERE user_id = $1 AND used_at IS NULL;

-- name: DeleteRecoveryCodes :exec
DELETE FROM recovery_code WHERE user_id = $1;

-- name: InsertChallenge :exec
INSERT INTO sign_in_challenge (secret_hash, kind, user_id, data, expires_at)
VALUES (@secret_hash, @kind, sqlc.narg(user_id)::uuid, @data, clock_timestamp() + make_interval(secs => @life_s::float8));

-- name: ChallengeUser :one
SELECT u.id AS user_id, u.email FROM sign_in_challenge c JOIN app_user u ON u.id = c.user_id
WHERE c.secret_hash = @secret_hash AND c.kind = 'code' AND c.expires_at > clock_timestamp() AND c.failures < @tries;

-- name: TakeChallenge :one
-- A challenge is finished once.
DELETE FROM sign_in_challenge WHERE secret_hash = @secret_hash AND kind = @kind AND expires_at > statement_timestamp() RETURNING user_id, data;

-- name: FailChallenge :one
UPDATE sign_in_challenge SET failures = failures + 1 WHERE secret_hash = $1 RETURNING failures;

-- name: DeleteChallengesOfUser :exec
DELETE FROM sign_in_challenge WHERE user_id = @user_id::uuid;

-- name: DeleteOldChallenges :execrows
DELETE FROM sign_in_challenge WHERE expires_at < statement_timestamp();
