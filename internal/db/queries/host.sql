-- Hosts: the rows that renting locks, and what their operators do with them.

-- name: LockHosts :many
SELECT sqlc.embed(h), sqlc.embed(s)
FROM host h
JOIN host_status s ON s.host_id = h.id
WHERE h.id = ANY(@ids::uuid[])
ORDER BY h.id
FOR NO KEY UPDATE OF h;

-- name: LockHostRows :exec
SELECT id FROM host WHERE id = ANY(@ids::uuid[]) ORDER BY id FOR NO KEY UPDATE;

-- name: GetHost :one
SELECT sqlc.embed(h), sqlc.embed(s), coalesce(f.name, '') AS fabric_name, coalesce(i.inventory, '{}')::jsonb AS inventory
FROM host h
JOIN host_status s ON s.host_id = h.id
LEFT JOIN fabric f ON f.id = h.fabric_id
LEFT JOIN host_inventory i ON i.host_id = h.id
WHERE h.id = @id AND h.org_id = @org_id;

-- name: ListHosts :many
SELECT sqlc.embed(h), sqlc.embed(s), coalesce(f.name, '') AS fabric_name
FROM host h
JOIN host_status s ON s.host_id = h.id
LEFT JOIN fabric f ON f.id = h.fabric_id
WHERE h.org_id = @org_id AND (h.id > @after) IS NOT FALSE AND (@retired::boolean OR h.retired_at IS NULL)
ORDER BY h.id
LIMIT @max_rows;

-- name: RaiseHostRevisions :many
UPDATE host SET revision = revision + 1 WHERE id = ANY(@ids::uuid[])
RETURNING id, revision;

-- name: SetHostState :exec
UPDATE host
SET state = @state, reclaim_at = CASE WHEN @state = 'draining' THEN reclaim_at END, reclaim_asked_at = CASE WHEN @state = 'draining' THEN reclaim_asked_at END
WHERE id = @id;

-- name: ReclaimHost :one
UPDATE host
SET state = 'draining', reclaim_asked_at = clock_timestamp(), reclaim_at = clock_timestamp() + make_interval(secs => @notice_s::integer)
WHERE id = @id
RETURNING reclaim_at;

-- name: HostsThatMayBeRented :many
-- Locks the hosts of an organisation that take leases, or will once they connect.
SELECT id, state FROM host WHERE org_id = @org_id AND state IN ('enrolled', 'active') ORDER BY id FOR NO KEY UPDATE;

-- name: RenameHost :exec
UPDATE host SET name = @name WHERE id = @id;

-- name: RetireHost :exec
UPDATE host SET state = 'retired', retired_at = clock_timestamp() WHERE id = @id;

-- name: VanishedHosts :many
-- Ephemeral hosts that have not reported for a while and have no claims; none while a server runs that started less than an hour ago,
-- because hosts may not have found it yet.
SELECT h.id
FROM host h JOIN host_status s ON s.host_id = h.id
WHERE h.ephemeral AND h.retired_at IS NULL
  AND coalesce(s.last_sync_at, h.created_at) < clock_timestamp() - interval '1 millisecond' * @after_ms::bigint
  AND NOT EXISTS (SELECT FROM replica r WHERE r.seen_at > clock_timestamp() - interval '1 minute'
                                          AND r.started_at > clock_timestamp() - interval '1 hour')
  AND NOT EXISTS (SELECT FROM gpu_claim c WHERE c.host_id = h.id AND c.ended_at IS NULL
                                            AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp()))
ORDER BY h.id;

-- name: RemoveMissingGPUs :execrows
UPDATE gpu g SET removed_at = clock_timestamp(), contest = ''
WHERE g.host_id = @host_id AND g.removed_at IS NULL AND NOT g.present
  AND NOT EXISTS (SELECT FROM gpu_claim c WHERE c.gpu_id = g.id AND c.ended_at IS NULL);

-- name: RevokeHostKeys :exec
UPDATE host_key SET revoked_at = clock_timestamp() WHERE host_id = @host_id AND revoked_at IS NULL;

-- name: RemoveHostGPUs :exec
UPDATE gpu SET present = false, removed_at = clock_timestamp() WHERE host_id = @host_id AND removed_at IS NULL;

-- name: CountHostClaims :one
SELECT count(*) FROM gpu_claim
WHERE host_id = @host_id AND ended_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp());

-- name: CountHostUploads :one
-- Ended leases whose GPUs are free and for which the host still uploads.
SELECT count(*) FROM lease WHERE host_id = @host_id AND gone_at IS NULL AND gpus_free_at IS NOT NULL;

-- name: ReadHost :one
SELECT sqlc.embed(h), sqlc.embed(s)
FROM host h
JOIN host_status s ON s.host_id = h.id
WHERE h.id = @id;
