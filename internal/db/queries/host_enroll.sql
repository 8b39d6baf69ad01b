-- Enrolment: one-time tokens become hosts.

-- name: InsertEnrollment :one
INSERT INTO enrollment_token (id, org_id, created_by, name, region, fabric, token_hash, expires_at)
VALUES (@id, @org_id, @created_by, @name, @region, @fabric, @token_hash, clock_timestamp() + interval '1 millisecond' * @ttl_ms::bigint)
RETURNING expires_at;

-- name: LockEnrollment :one
SELECT id, org_id, created_by, name, region, fabric, expires_at, used_at, host_id
FROM enrollment_token
WHERE token_hash = @token_hash
FOR UPDATE;

-- name: UseEnrollment :exec
UPDATE enrollment_token SET used_at = clock_timestamp(), host_id = @host_id WHERE id = @id;

-- name: EnsureFabric :one
INSERT INTO fabric (id, org_id, name) VALUES (@id, @org_id, @name)
ON CONFLICT (org_id, name) DO UPDATE SET name = excluded.name
RETURNING id;

-- name: InsertHost :exec
INSERT INTO host (id, org_id, name, region, fabric_id, state, simulated, ephemeral)
VALUES (@id, @org_id, @name, @region, @fabric_id, 'enrolled', @simulated, @ephemeral);

-- name: InsertHostStatus :exec
INSERT INTO host_status (host_id) VALUES (@host_id);

-- name: InsertHostKey :exec
INSERT INTO host_key (host_id, link_key, attest_key) VALUES (@host_id, @link_key, @attest_key);

-- name: HostNameTaken :one
SELECT EXISTS (SELECT FROM host WHERE org_id = @org_id AND name = @name AND retired_at IS NULL);

-- name: GetEnrollment :one
SELECT expires_at, used_at, host_id, step, step_detail, step_failed, step_at, (used_at IS NULL AND expires_at <= clock_timestamp())::boolean AS expired
FROM enrollment_token
WHERE id = @id AND org_id = @org_id;

-- name: EndEnrollmentsOf :execrows
-- Tokens that a user created for an org and that no host has used.
UPDATE enrollment_token SET expires_at = clock_timestamp()
WHERE org_id = @org_id AND created_by = @created_by AND used_at IS NULL AND expires_at > clock_timestamp();

-- name: SetEnrollmentStep :execrows
-- How far the installation is that will use the token.
UPDATE enrollment_token SET step = @step, step_detail = @detail, step_failed = @failed, step_at = clock_timestamp()
WHERE token_hash = @token_hash AND used_at IS NULL AND expires_at > clock_timestamp();
