-- Shared file systems of operators, and organisations' folders there.

-- name: InsertSharedFS :many
-- No row: the name is used. Hosts that have reported the name before give it its marker.
INSERT INTO shared_fs (id, org_id, name, kind, quota_gb, created_by, marker)
VALUES (@id, @org_id, @name, @kind, @quota_gb, @created_by, coalesce((
    SELECT x.marker FROM shared_host x JOIN host h ON h.id = x.host_id
    WHERE x.name = @name AND h.org_id = @org_id AND x.marker <> '' ORDER BY x.host_id LIMIT 1), '')) -- scan: one name's
ON CONFLICT (name) DO NOTHING
RETURNING *;

-- name: LockSharedFSOfOrg :exec
-- Serialises declarations, so that the limit per organisation holds.
SELECT pg_advisory_xact_lock(7274034, hashtext(@org::text));

-- name: CountSharedFS :one
SELECT count(*) FROM shared_fs WHERE org_id = @org_id;

-- name: LockSharedFS :one
SELECT id, name FROM shared_fs WHERE id = @id AND org_id = @org_id FOR UPDATE;

-- name: DeleteSharedFS :exec
DELETE FROM shared_fs WHERE id = @id;

-- name: CountLiveSharedFolders :one
SELECT count(*) FROM shared_folder WHERE shared_id = @shared_id AND state = 'live';

-- name: RecordSharedHost :exec
-- Stores what a host reports. The first marker that an operator's host reports of a declared name is the file system's.
WITH sent AS (
    SELECT unnest(@names::text[]) AS name, unnest(@markers::text[]) AS marker, unnest(@fs_types::text[]) AS fs_type,
           unnest(@sizes_gb::bigint[]) AS size_gb, unnest(@problems::text[]) AS problem
), gone AS (
    DELETE FROM shared_host x WHERE x.host_id = @host_id AND NOT EXISTS (SELECT FROM sent WHERE sent.name = x.name)
), adopted AS (
    UPDATE shared_fs s SET marker = sent.marker
    FROM sent, host h
    WHERE h.id = @host_id AND s.org_id = h.org_id AND s.name = sent.name AND s.marker = '' AND sent.marker <> ''
)
INSERT INTO shared_host AS x (host_id, name, marker, fs_type, size_gb, problem)
SELECT @host_id, sent.name, sent.marker, sent.fs_type, sent.size_gb, sent.problem FROM sent
ON CONFLICT (host_id, name) DO UPDATE
SET marker = excluded.marker, fs_type = excluded.fs_type, size_gb = excluded.size_gb, problem = excluded.problem
WHERE (x.marker, x.fs_type, x.size_gb, x.problem)
      IS DISTINCT FROM (excluded.marker, excluded.fs_type, excluded.size_gb, excluded.problem);

-- name: ForgetSharedHosts :exec
DELETE FROM shared_host WHERE host_id = ANY(@hosts::uuid[]);

-- name: ListSharedFS :many
-- The file systems that an organisation declares, those where it has a folder, and those that hosts have now.
SELECT s.id, s.org_id, s.name, s.kind, s.quota_gb, s.marker, s.created_at,
       coalesce(x.hosts, 0)::bigint AS hosts, coalesce(x.size_gb, 0)::bigint AS size_gb, coalesce(x.fs_type, '')::text AS fs_type,
       coalesce(x.regions, '{}')::text[] AS regions,
       f.id AS folder_id, coalesce(f.used_bytes, 0)::bigint AS used_bytes, coalesce(f.closed, false)::boolean AS closed,
       coalesce(f.problem, '')::text AS problem, coalesce(f.clusters, 0)::bigint AS clusters,
       coalesce(f.last_at, s.created_at)::timestamptz AS last_at
FROM shared_fs s
LEFT JOIN LATERAL (
    SELECT count(*) AS hosts, max(x.size_gb) AS size_gb, max(x.fs_type) AS fs_type,
           array_agg(DISTINCT h.region) FILTER (WHERE h.region <> '') AS regions
    FROM shared_host x JOIN host h ON h.id = x.host_id
    WHERE x.name = s.name AND x.marker = s.marker AND x.marker <> '' AND x.problem = '' AND h.org_id = s.org_id
      AND h.state = 'active') x ON true
LEFT JOIN LATERAL (
    SELECT f.*, (SELECT count(*) FROM shared_mount m JOIN cluster c ON c.id = m.cluster_id
                 WHERE m.folder_id = f.id AND c.ended_at IS NULL) AS clusters,
           greatest(f.used_at, (SELECT max(c.ended_at) FROM shared_mount m JOIN cluster c ON c.id = m.cluster_id
                                WHERE m.folder_id = f.id))::timestamptz AS last_at
    FROM shared_folder f WHERE f.shared_id = s.id AND f.org_id = @org_id AND f.state = 'live') f ON true
WHERE s.org_id = @org_id OR f.id IS NOT NULL OR x.hosts > 0
ORDER BY s.name;

-- name: SharedHostProblems :many
-- What is wrong with the file systems of an operator on its hosts.
SELECT s.id AS shared_id, h.name AS host_name,
       (CASE WHEN x.problem <> '' THEN x.problem ELSE 'another file system than the one of the first host is mounted there' END)::text AS problem
FROM shared_fs s
JOIN shared_host x ON x.name = s.name
JOIN host h ON h.id = x.host_id AND h.org_id = s.org_id AND h.state <> 'retired'
WHERE s.org_id = @org_id AND (x.problem <> '' OR x.marker <> s.marker)
ORDER BY s.id, h.name;

-- name: SharedByName :many
SELECT s.id, s.name FROM shared_fs s WHERE s.name = ANY(@names::text[]);

-- name: LockSharedByName :many
-- For a rent: they are not withdrawn until it commits.
SELECT s.id, s.name FROM shared_fs s WHERE s.name = ANY(@names::text[]) ORDER BY s.id FOR KEY SHARE;

-- name: InsertSharedMount :exec
-- The organisation's folder is made with its first cluster. A deletion that commits first leaves it a new one.
WITH f AS (
    INSERT INTO shared_folder (id, shared_id, org_id) VALUES (@fresh_id, @shared_id, @org_id)
    ON CONFLICT (shared_id, org_id) WHERE state = 'live' DO UPDATE SET used_at = clock_timestamp(), warned_at = NULL
    RETURNING id
)
INSERT INTO shared_mount (cluster_id, folder_id, mode) SELECT @cluster_id, f.id, @mode FROM f;

-- name: SharedOfHost :many
-- The shared folders of a host's leases.
SELECT DISTINCT ON (m.cluster_id, m.folder_id) m.cluster_id, m.folder_id, m.mode, s.name, s.marker, s.quota_gb
FROM lease l
JOIN shared_mount m ON m.cluster_id = l.cluster_id
JOIN shared_folder f ON f.id = m.folder_id
JOIN shared_fs s ON s.id = f.shared_id
WHERE l.host_id = @host_id AND l.ended_at IS NULL;

-- name: SharedErasesOfHost :many
-- The folders that a host can delete.
SELECT f.id AS folder_id, s.name, s.marker
FROM shared_host x
JOIN host h ON h.id = x.host_id
JOIN shared_fs s ON s.name = x.name AND s.org_id = h.org_id AND s.marker = x.marker
JOIN shared_folder f ON f.shared_id = s.id AND f.state = 'deleting'
WHERE x.host_id = @host_id AND x.problem = '' AND x.marker <> ''
ORDER BY f.id LIMIT 256; -- scan: in order

-- name: LockSharedFolder :one
SELECT f.id FROM shared_folder f WHERE f.shared_id = @shared_id AND f.org_id = @org_id AND f.state = 'live' FOR UPDATE;

-- name: ClustersOfSharedFolder :many
SELECT c.name FROM shared_mount m JOIN cluster c ON c.id = m.cluster_id
WHERE m.folder_id = @folder_id AND c.ended_at IS NULL ORDER BY c.name;

-- name: DeleteSharedFolder :exec
UPDATE shared_folder SET state = 'deleting', deleting_at = clock_timestamp() WHERE id = @id AND state = 'live';

-- name: HostsOfShared :many
SELECT h.id FROM shared_fs s
JOIN shared_host x ON x.name = s.name AND x.marker = s.marker
JOIN host h ON h.id = x.host_id AND h.org_id = s.org_id
WHERE s.id = @id AND x.marker <> '';

-- name: DeleteSharedFoldersOfOrg :exec
-- The organisation is deleted: its clusters have ended.
UPDATE shared_folder SET state = 'deleting', deleting_at = clock_timestamp() WHERE org_id = @org_id AND state = 'live';

-- name: RecordSharedUse :many
-- Stores what a host has measured of folders on the file systems that it has, and returns those that it has closed and
-- was not known to have closed.
WITH sent AS (
    SELECT unnest(@folders::uuid[]) AS folder, unnest(@bytes::bigint[]) AS bytes, unnest(@closed::boolean[]) AS closed,
           unnest(@erased::boolean[]) AS erased, unnest(@problems::text[]) AS problem
), before AS (
    SELECT f.id, f.closed, sent.bytes, sent.closed AS now_closed, sent.erased, sent.problem, s.name, s.quota_gb
    FROM sent
    JOIN shared_folder f ON f.id = sent.folder
    JOIN shared_fs s ON s.id = f.shared_id
    JOIN shared_host x ON x.host_id = @host_id AND x.name = s.name AND x.marker = s.marker AND x.marker <> ''
    JOIN host h ON h.id = x.host_id AND h.org_id = s.org_id
    FOR UPDATE OF f
), stored AS (
    UPDATE shared_folder f
    SET used_bytes = CASE WHEN b.erased OR f.state = 'live' THEN b.bytes ELSE f.used_bytes END, closed = b.now_closed,
        problem = b.problem, state = CASE WHEN b.erased AND f.state = 'deleting' THEN 'erased' ELSE f.state END,
        erased_at = CASE WHEN b.erased AND f.state = 'deleting' THEN clock_timestamp() ELSE f.erased_at END
    FROM before b WHERE f.id = b.id
    RETURNING f.id, f.org_id
)
SELECT stored.id AS folder_id, stored.org_id, b.name, b.quota_gb, b.bytes::bigint AS bytes
FROM stored JOIN before b ON b.id = stored.id WHERE b.now_closed AND NOT b.closed;

-- name: IdleSharedFolders :many
-- Live folders without a cluster for long; those first that were used longest ago. (A folder with a cluster does not count.)
SELECT f.id, f.org_id, f.shared_id, s.name, f.warned_at, l.last_at::timestamptz AS last_at
FROM shared_folder f
JOIN shared_fs s ON s.id = f.shared_id
CROSS JOIN LATERAL (SELECT greatest(f.used_at, max(c.ended_at)) AS last_at, count(*) FILTER (WHERE c.ended_at IS NULL AND c.id IS NOT NULL) AS living
                    FROM shared_mount m JOIN cluster c ON c.id = m.cluster_id WHERE m.folder_id = f.id) l
WHERE f.state = 'live' AND f.used_at < @before AND l.last_at < @before AND l.living = 0
  AND (f.warned_at < @warned_before OR f.warned_at IS NULL AND @unwarned::boolean)
ORDER BY f.used_at, f.id LIMIT @max_rows; -- scan: few are idle

-- name: WarnSharedFolder :execrows
UPDATE shared_folder SET warned_at = clock_timestamp() WHERE id = @id AND state = 'live' AND warned_at IS NULL;

-- name: LockIdleSharedFolder :one
SELECT f.id FROM shared_folder f WHERE f.id = @id AND f.state = 'live' AND f.warned_at < @warned_before FOR UPDATE;
