-- name: InsertOrg :exec
INSERT INTO org (id, name, personal) VALUES ($1, $2, $3);

-- name: InsertUser :exec
INSERT INTO app_user (id, email, name, password_hash, admin) VALUES ($1, $2, $3, $4, $5);

-- name: InsertMembership :exec
INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, $3);

-- name: UserForSignIn :one
SELECT id, password_hash FROM app_user WHERE email = $1;

-- name: UserPasswordHash :one
SELECT password_hash, email FROM app_user WHERE id = $1 FOR UPDATE;

-- name: SetPasswordHash :exec
UPDATE app_user SET password_hash = @password_hash WHERE id = @id;

-- name: SetUserAdmin :one
UPDATE app_user SET admin = @admin WHERE email = @email RETURNING id;

-- name: HomeOrg :one
SELECT o.id FROM membership m JOIN org o ON o.id = m.org_id WHERE m.user_id = $1 ORDER BY o.personal DESC, m.created_at, o.id LIMIT 1;

-- name: UserProfile :one
SELECT u.id, u.email, u.name, u.admin, (u.email_verified_at IS NOT NULL)::boolean AS email_verified, u.created_at, o.id AS org_id, o.name AS org_name, o.personal, o.zone, m.role
FROM app_user u JOIN membership m ON m.user_id = u.id JOIN org o ON o.id = m.org_id
WHERE u.id = @user_id AND o.id = @org_id;

-- name: InsertSession :exec
INSERT INTO session (id, user_id, org_id, secret_hash, address, user_agent, expires_at)
VALUES (@id, @user_id, @org_id, @secret_hash, @address, @user_agent, clock_timestamp() + make_interval(secs => @max_age::float8));

-- name: SessionBySecret :one
SELECT s.id, s.user_id, s.org_id, s.last_seen_at < clock_timestamp() - interval '1 minute' AS stale,
       s.rotated_at < clock_timestamp() - make_interval(secs => @rotate_after::float8) AS rotation_due,
       u.email, u.admin, o.name AS org_name, m.role
FROM session s
JOIN membership m ON m.user_id = s.user_id AND m.org_id = s.org_id
JOIN app_user u ON u.id = s.user_id
JOIN org o ON o.id = s.org_id
WHERE (s.secret_hash = @secret_hash
       OR (s.previous_hash = @secret_hash AND s.rotated_at > clock_timestamp() - interval '1 minute'))
  AND s.expires_at > clock_timestamp() AND s.last_seen_at > clock_timestamp() - make_interval(secs => @idle::float8);

-- name: TouchSession :exec
UPDATE session SET last_seen_at = clock_timestamp() WHERE id = $1 AND last_seen_at < clock_timestamp() - interval '1 minute';

-- name: RotateSession :execrows
UPDATE session SET previous_hash = secret_hash, secret_hash = @new_hash, rotated_at = clock_timestamp()
WHERE secret_hash = @old_hash AND expires_at > clock_timestamp();

-- name: ListSessions :many
SELECT id, address, user_agent, created_at, last_seen_at, expires_at
FROM session WHERE user_id = @user_id AND expires_at > clock_timestamp() ORDER BY last_seen_at DESC;

-- name: DeleteSession :execrows
DELETE FROM session WHERE id = @id AND user_id = @user_id;

-- name: DeleteSessionsOfUser :execrows
DELETE FROM session WHERE user_id = @user_id AND id IS DISTINCT FROM sqlc.narg(keep)::uuid;

-- name: DeleteDeadSessions :execrows
DELETE FROM session WHERE expires_at < statement_timestamp() OR last_seen_at < statement_timestamp() - make_interval(secs => @idle::float8);

-- name: InsertToken :one
INSERT INTO api_token (id, org_id, user_id, name, secret_hash, hint, scopes, expires_at, parent_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, sqlc.narg(parent_id))
RETURNING created_at;

-- name: TokenBySecret :one
SELECT t.id, t.org_id, t.user_id, t.scopes, u.email, u.admin, o.name AS org_name, m.role,
       coalesce(t.last_used_at < clock_timestamp() - interval '1 minute', true)::boolean AS stale
FROM api_token t
JOIN membership m ON m.user_id = t.user_id AND m.org_id = t.org_id
JOIN app_user u ON u.id = t.user_id
JOIN org o ON o.id = t.org_id
WHERE t.secret_hash = @secret_hash AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp());

-- name: TouchToken :exec
UPDATE api_token SET last_used_at = clock_timestamp()
WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < clock_timestamp() - interval '1 minute');

-- name: ListTokens :many
SELECT id, name, hint, scopes, expires_at, last_used_at, created_at
FROM api_token
WHERE org_id = @org_id AND revoked_at IS NULL AND (sqlc.narg(after)::uuid IS NULL OR id < sqlc.narg(after)::uuid)
ORDER BY id DESC LIMIT @max_rows;

-- name: CountTokens :one
SELECT count(*) FROM api_token WHERE org_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp());

-- name: TokenScopes :one
SELECT scopes FROM api_token WHERE id = @id AND org_id = @org_id AND revoked_at IS NULL FOR UPDATE;

-- name: StillIn :one
-- The role of a member, and whether what they were let in with, a token, a session or an SSH key, is still valid.
SELECT m.role, ((sqlc.narg(token_id)::uuid IS NULL OR EXISTS (SELECT FROM api_token t WHERE t.id = sqlc.narg(token_id)::uuid AND t.org_id = @org_id
         AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp())))
    AND (sqlc.narg(session_id)::uuid IS NULL OR EXISTS (SELECT FROM session s WHERE s.id = sqlc.narg(session_id)::uuid
         AND s.user_id = @user_id AND s.expires_at > clock_timestamp()
         AND s.last_seen_at > clock_timestamp() - make_interval(secs => @idle::float8)))
    AND (@key::text = '' OR EXISTS (SELECT FROM ssh_key k WHERE k.org_id = @org_id AND k.fingerprint = @key::text)))::boolean AS valid
FROM membership m WHERE m.user_id = @user_id AND m.org_id = @org_id;

-- name: RevokeTokens :many
-- Revokes tokens and those that they made, to any depth. A token made while this waits for its maker's row is not seen:
-- repeat until nothing is returned.
WITH RECURSIVE tree AS (
    SELECT t.id FROM api_token t WHERE t.id = ANY(@ids::uuid[])
    UNION
    SELECT c.id FROM api_token c JOIN tree ON c.parent_id = tree.id
)
UPDATE api_token SET revoked_at = clock_timestamp() WHERE revoked_at IS NULL AND id IN (SELECT id FROM tree) RETURNING id;

-- name: LockTokenExpiry :one
-- The expiry of a token that makes another one. The lock keeps it from being revoked meanwhile.
SELECT expires_at FROM api_token
WHERE id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp()) FOR NO KEY UPDATE;

-- name: TokensOfUser :many
SELECT id FROM api_token WHERE user_id = @user_id AND revoked_at IS NULL ORDER BY id FOR UPDATE;

-- name: TokensOfUserWithScope :many
SELECT id FROM api_token WHERE user_id = @user_id AND @scope::text = ANY(scopes) AND revoked_at IS NULL ORDER BY id FOR UPDATE;

-- name: InsertSSHKey :one
INSERT INTO ssh_key (id, org_id, user_id, name, public_key, fingerprint)
VALUES ($1, $2, $3, $4, $5, $6)
RETURNING created_at;

-- name: ListSSHKeys :many
SELECT id, user_id, name, public_key, fingerprint, created_at
FROM ssh_key
WHERE org_id = @org_id AND (sqlc.narg(after)::uuid IS NULL OR id < sqlc.narg(after)::uuid)
ORDER BY id DESC LIMIT @max_rows;

-- name: SSHKeysByID :many
SELECT id, user_id, name, public_key, fingerprint, created_at
FROM ssh_key WHERE org_id = @org_id AND id = ANY(@ids::uuid[]) ORDER BY id;

-- name: SSHKeyByFingerprint :one
-- With the role of the member who added it; none: they have left the org.
SELECT k.id, k.user_id, k.name, k.public_key, k.fingerprint, k.created_at, m.role
FROM ssh_key k JOIN membership m ON m.org_id = k.org_id AND m.user_id = k.user_id
WHERE k.org_id = @org_id AND k.fingerprint = @fingerprint;

-- name: CountSSHKeys :one
SELECT count(*) FROM ssh_key WHERE org_id = $1;

-- name: DeleteSSHKey :execrows
DELETE FROM ssh_key WHERE id = @id AND org_id = @org_id;

-- name: CountAttempt :one
INSERT INTO login_throttle (key, failures, window_start) VALUES (@key, 1, clock_timestamp())
ON CONFLICT (key) DO UPDATE SET
    failures = CASE WHEN login_throttle.window_start < clock_timestamp() - make_interval(secs => @win::float8) THEN 1 ELSE login_throttle.failures + 1 END,
    window_start = CASE WHEN login_throttle.window_start < clock_timestamp() - make_interval(secs => @win::float8) THEN clock_timestamp() ELSE login_throttle.window_start END
RETURNING failures, extract(epoch FROM window_start + make_interval(secs => @win::float8) - clock_timestamp())::float8 AS seconds_left;

-- name: Attempts :one
-- The attempts of a window that has not ended.
SELECT failures, extract(epoch FROM window_start + make_interval(secs => @win::float8) - clock_timestamp())::float8 AS seconds_left
FROM login_throttle WHERE key = @key AND window_start > clock_timestamp() - make_interval(secs => @win::float8);

-- name: ForgiveAttempt :exec
UPDATE login_throttle SET failures = greatest(failures - 1, 0) WHERE key = $1;

-- name: ForgetAttempts :exec
DELETE FROM login_throttle WHERE key = $1;

-- name: DeleteOldAttempts :execrows
DELETE FROM login_throttle
WHERE window_start < statement_timestamp() - CASE WHEN key LIKE 'known:%' THEN interval '90 days' ELSE interval '1 day' END;

-- name: KnownPlace :one
SELECT EXISTS (SELECT FROM login_throttle WHERE key = @key AND window_start > statement_timestamp() - interval '90 days');

-- name: NotePlace :exec
INSERT INTO login_throttle (key, failures, window_start) VALUES (@key, 0, clock_timestamp())
ON CONFLICT (key) DO UPDATE SET window_start = excluded.window_start;
