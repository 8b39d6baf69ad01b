-- name: InsertDeviceLogin :one
INSERT INTO device_login (device_hash, user_code, machine, address, expires_at)
VALUES (@device_hash, @user_code, @machine, @address, clock_timestamp() + make_interval(secs => @life_s::float8))
RETURNING expires_at;

-- name: DeviceLoginByCode :one
SELECT machine, address, created_at, expires_at FROM device_login
WHERE user_code = $1 AND answer IS NULL AND expires_at > clock_timestamp();

-- name: AnswerDeviceLogin :one
-- It is answered once.
UPDATE device_login SET answer = @answer::text, user_id = @user_id, org_id = @org_id, scopes = @scopes
WHERE user_code = @user_code AND answer IS NULL AND expires_at > statement_timestamp() RETURNING machine, address;

-- name: PollDeviceLogin :one
-- Locks a login, and notes that it was polled. early: less than the interval after the last time.
WITH old AS (SELECT o.device_hash, o.polled_at FROM device_login o WHERE o.device_hash = @device_hash AND o.expires_at > clock_timestamp() FOR UPDATE)
UPDATE device_login d SET polled_at = clock_timestamp() FROM old WHERE d.device_hash = old.device_hash
RETURNING coalesce(d.answer, '')::text AS answer, d.user_id, d.org_id, d.scopes, d.machine, d.address,
          coalesce(old.polled_at > clock_timestamp() - make_interval(secs => @interval_s::float8), false)::boolean AS early;

-- name: DeleteDeviceLogin :exec
DELETE FROM device_login WHERE device_hash = $1;

-- name: DeleteDeviceLoginsOfUser :exec
DELETE FROM device_login WHERE user_id = @user_id;

-- name: DeleteOldDeviceLogins :execrows
DELETE FROM device_login WHERE expires_at < statement_timestamp();
