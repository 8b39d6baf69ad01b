-- Volumes, as their renters see them.

-- name: InsertDataDomain :exec
INSERT INTO data_domain (id, org_id, key_sealed) VALUES (@id, @org_id, @key_sealed);

-- name: LockVolumesOfOrg :exec
-- Serialises creation, so that the limit per organisation holds.
SELECT pg_advisory_xact_lock(7274032, hashtext(@org::text));

-- name: CountVolumes :one
SELECT count(*) FROM volume WHERE org_id = @org_id AND deleted_at IS NULL;

-- name: InsertVolume :many
-- No row: the name is used.
INSERT INTO volume (id, org_id, domain_id, name, size_limit, keep_last, created_by)
VALUES (@id, @org_id, @domain_id, @name, @size_limit, @keep_last, @created_by)
ON CONFLICT (org_id, name) WHERE deleted_at IS NULL DO NOTHING
RETURNING created_at;

-- name: Volumes :many
-- The organisation's, by name; or the one of the id.
SELECT sqlc.embed(v), d.bytes AS domain_bytes,
       (d.bytes - (SELECT coalesce(sum(p.bytes), 0) FROM data_pack p
           WHERE p.domain_id = v.domain_id AND p.lost_at IS NOT NULL AND p.state = 'live')
           + (SELECT coalesce(sum(p.bytes), 0) FROM data_pack p
           WHERE p.domain_id = v.domain_id AND p.state = 'granted' AND p.verified_at IS NOT NULL))::bigint AS billed_bytes,
       (SELECT count(*) FROM volume_snapshot s WHERE s.volume_id = v.id AND s.deleted_at IS NULL) AS snapshots,
       (SELECT count(*) FROM volume o WHERE o.domain_id = v.domain_id AND o.deleted_at IS NULL) AS sharing,
       h.cut_at AS head_cut_at, coalesce(h.logical_bytes, 0)::bigint AS head_bytes, coalesce(h.files, 0)::bigint AS head_files,
       coalesce(h.label, '') AS head_label, coalesce(h.consistency, '') AS head_consistency,
       w.cluster_id AS writer_cluster_id, coalesce(c.name, '') AS writer_name, c.ended_at AS writer_ended_at,
       coalesce(x.pending_bytes, 0)::bigint AS pending_bytes, coalesce(x.flush_eta_s, 0)::bigint AS flush_eta_s,
       coalesce(x.problem, '') AS problem, x.reported_at, m.unpaid_since, m.kept_until,
       CASE WHEN m.unpaid_since IS NULL THEN 0 ELSE greatest(0, div(m.numerator, 3600000000000000000) - m.posted) END::bigint AS owed
FROM volume v
JOIN data_domain d ON d.id = v.domain_id
LEFT JOIN data_meter m ON m.domain_id = v.domain_id
LEFT JOIN volume_snapshot h ON h.volume_id = v.id AND h.seq = v.head_seq AND h.deleted_at IS NULL
LEFT JOIN volume_writer w ON w.volume_id = v.id
LEFT JOIN cluster c ON c.id = w.cluster_id
LEFT JOIN LATERAL ( -- of the writer's session; of several ranks, all together, and the oldest report
    SELECT (sum(y.pending_bytes) OVER ())::bigint AS pending_bytes, (max(y.flush_eta_s) OVER ())::bigint AS flush_eta_s,
           (max(y.problem) OVER ())::text AS problem, y.reported_at
    FROM data_session y WHERE y.closed_at IS NULL AND (y.id = w.session_id
        OR w.start_epoch > 0 AND y.id IN (SELECT session_id FROM volume_shard h2 WHERE h2.volume_id = v.id))
    ORDER BY y.reported_at NULLS FIRST LIMIT 1) x ON true
WHERE v.org_id = @org_id AND v.deleted_at IS NULL AND (sqlc.narg(id)::uuid IS NULL OR v.id = sqlc.narg(id))
ORDER BY v.name;

-- name: LockVolume :one
-- The domain first, then the volume.
WITH d AS MATERIALIZED (
    SELECT dd.id FROM data_domain dd WHERE dd.id = (SELECT domain_id FROM volume WHERE volume.id = @id) FOR UPDATE)
SELECT v.* FROM volume v JOIN d ON d.id = v.domain_id WHERE v.id = @id FOR UPDATE OF v;

-- name: LockDataDomain :one
SELECT * FROM data_domain WHERE id = @id FOR UPDATE;

-- name: LockDomainsOfOrg :many
-- Those that may have volumes, by id.
SELECT id FROM data_domain WHERE org_id = @org_id AND erased_at IS NULL ORDER BY id FOR UPDATE;

-- name: LockLivingVolumes :many
-- The organisation's, once its domains are locked.
SELECT * FROM volume WHERE org_id = @org_id AND deleted_at IS NULL ORDER BY id FOR UPDATE;

-- name: SetVolume :exec
UPDATE volume SET name = @name, size_limit = @size_limit, keep_last = @keep_last WHERE id = @id;

-- name: SetVolumeDeleted :exec
UPDATE volume SET deleted_at = @at, wanted_id = NULL, wanted_at = NULL WHERE id = @id;

-- name: SetVolumeWanted :exec
UPDATE volume SET wanted_id = sqlc.narg(wanted_id), wanted_at = sqlc.narg(wanted_at) WHERE id = @id;

-- name: VolumeSnapshots :many
-- Newest first.
SELECT * FROM volume_snapshot WHERE volume_id = @volume_id AND deleted_at IS NULL ORDER BY seq DESC LIMIT 1000;

-- name: HeadSnapshot :many
SELECT s.* FROM volume_snapshot s JOIN volume v ON v.id = s.volume_id AND v.head_seq = s.seq
WHERE v.id = @volume_id AND s.deleted_at IS NULL;

-- name: RestoreSnapshot :many
-- scan: lookup
-- What a new start restores: the head; but not one that has ranks at different moments, if there is one with a label.
SELECT s.* FROM volume_snapshot s JOIN volume v ON v.id = s.volume_id
WHERE v.id = @volume_id AND s.deleted_at IS NULL AND (s.seq = v.head_seq OR s.whole
    AND EXISTS (SELECT FROM volume_snapshot l WHERE l.volume_id = v.id AND l.deleted_at IS NULL AND l.whole AND l.label <> '')
    AND EXISTS (SELECT FROM volume_snapshot h WHERE h.volume_id = v.id AND h.seq = v.head_seq AND NOT h.whole))
ORDER BY s.whole DESC, s.seq DESC LIMIT 1;

-- name: SnapshotAt :many
SELECT * FROM volume_snapshot WHERE volume_id = @volume_id AND seq = @seq AND deleted_at IS NULL;

-- name: PinnedSnapshot :many
-- The base of a session, also if it was deleted since: the session keeps its packs.
SELECT * FROM volume_snapshot WHERE volume_id = @volume_id AND seq = @seq;

-- name: DeleteSnapshots :execrows
UPDATE volume_snapshot SET deleted_at = @at
WHERE volume_id = @volume_id AND deleted_at IS NULL AND (seq = ANY(@seqs::bigint[]) OR @everything::boolean);

-- name: CopySnapshot :exec
-- A clone begins with the snapshot of its origin; a volume that is set back gets it as its next one.
INSERT INTO volume_snapshot (volume_id, seq, id, root_id, root_pack, root_offset, root_length, root_size, packs, logical_bytes,
    added_bytes, files, left_out, cut_at, committed_at, cause, consistency, label, whole)
SELECT @volume_id, @seq, @id, root_id, root_pack, root_offset, root_length, root_size, packs, logical_bytes,
    0, files, left_out, cut_at, @at, @cause, consistency, label, whole
FROM volume_snapshot s WHERE s.id = @from_id;

-- name: SetVolumeHead :exec
UPDATE volume SET head_seq = @seq WHERE id = @id;

-- name: VolumeWriters :many
-- Who writes these volumes, and what decides whether they still may.
SELECT w.volume_id, w.cluster_id, w.session_id, c.ended_at AS cluster_ended_at, coalesce(c.name, '') AS cluster_name,
       x.closed_at, x.expires_at, l.ended_at AS lease_ended_at, l.gone_at AS lease_gone_at,
       (EXISTS (SELECT FROM node n WHERE n.lease_id = x.lease_id AND n.state = 'lost'))::boolean AS lost,
       (w.cluster_id IS NOT NULL AND NOT EXISTS (SELECT FROM node n WHERE n.cluster_id = w.cluster_id AND n.state <> 'lost'))::boolean AS all_lost,
       w.start_epoch, w.start_seq, w.merge_packs,
       (w.start_epoch > 0 AND EXISTS (SELECT FROM volume_shard h JOIN data_session y ON y.id = h.session_id JOIN lease k ON k.id = y.lease_id
                WHERE h.volume_id = w.volume_id AND y.closed_at IS NULL AND k.gone_at IS NULL
                  AND NOT EXISTS (SELECT FROM node n WHERE n.lease_id = k.id AND n.state = 'lost')))::boolean AS ranks_write
FROM volume_writer w
LEFT JOIN cluster c ON c.id = w.cluster_id
LEFT JOIN data_session x ON x.id = w.session_id
LEFT JOIN lease l ON l.id = x.lease_id
WHERE w.volume_id = ANY(@ids::uuid[]);

-- name: LockVolumes :many
-- For a rent: the domains first, both by id. The organisation's own only.
WITH d AS MATERIALIZED (
    SELECT dd.id FROM data_domain dd
    WHERE dd.id IN (SELECT domain_id FROM volume WHERE volume.id = ANY(@ids::uuid[]) AND volume.org_id = @org_id)
    ORDER BY dd.id FOR UPDATE)
SELECT v.id, v.domain_id, v.name, v.size_limit FROM volume v JOIN d ON d.id = v.domain_id
WHERE v.id = ANY(@ids::uuid[]) AND v.org_id = @org_id AND v.deleted_at IS NULL
ORDER BY v.id FOR UPDATE OF v;

-- name: InsertVolumeMount :exec
INSERT INTO volume_mount (cluster_id, volume_id, mode, lazy) VALUES (@cluster_id, @volume_id, @mode, @lazy);

-- name: SetVolumeWriter :exec
INSERT INTO volume_writer (volume_id, cluster_id, session_id) VALUES (@volume_id, sqlc.narg(cluster_id), sqlc.narg(session_id))
ON CONFLICT (volume_id) DO UPDATE SET cluster_id = excluded.cluster_id, session_id = excluded.session_id, since = clock_timestamp(),
    start_epoch = 0, start_seq = 0, merge_packs = '';

-- name: DeleteVolumeWriter :exec
DELETE FROM volume_writer WHERE volume_id = @volume_id;

-- name: MountsOfHost :many
-- The volumes of a host's leases, with their sealed keys.
SELECT DISTINCT ON (m.cluster_id, m.volume_id) m.cluster_id, m.volume_id, m.mode, v.name, v.size_limit, v.domain_id, v.wanted_id,
       d.key_sealed
FROM lease l
JOIN volume_mount m ON m.cluster_id = l.cluster_id
JOIN volume v ON v.id = m.volume_id
JOIN data_domain d ON d.id = v.domain_id
WHERE l.host_id = @host_id AND l.ended_at IS NULL;

-- name: EndingMountsOfHost :many
-- The volumes of a host's leases that have ended, which the host may still store, with their sealed keys.
SELECT l.id AS lease_id, l.epoch, m.volume_id, v.domain_id, d.key_sealed
FROM lease l
JOIN volume_mount m ON m.cluster_id = l.cluster_id AND m.mode <> 'ro'
JOIN data_session x ON x.volume_id = m.volume_id AND x.lease_id = l.id AND x.epoch = l.epoch AND x.closed_at IS NULL
JOIN volume v ON v.id = m.volume_id AND v.deleted_at IS NULL
JOIN data_domain d ON d.id = v.domain_id
WHERE l.host_id = @host_id AND l.gone_at IS NULL
  AND l.ended_at > clock_timestamp() - make_interval(secs => @flush_s::double precision)
ORDER BY l.id, m.volume_id;

-- name: ReadingProblems :many
-- Why reads of a cluster's nodes wait or fail, of the volumes that they read on demand.
SELECT DISTINCT ON (x.volume_id) x.volume_id, x.problem FROM lease l
JOIN data_session x ON x.lease_id = l.id AND x.epoch = l.epoch AND x.closed_at IS NULL AND x.mode = 'ro' AND x.problem <> ''
WHERE l.cluster_id = @cluster_id AND l.ended_at IS NULL
ORDER BY x.volume_id, x.reported_at DESC;

-- name: LiveMounts :one
-- How many clusters that have not ended have a volume.
SELECT count(*) FROM volume_mount m JOIN cluster c ON c.id = m.cluster_id WHERE m.volume_id = @volume_id AND c.ended_at IS NULL;

-- name: HostsOfWriter :many
-- Where the cluster that writes a volume runs.
SELECT DISTINCT l.host_id FROM volume_writer w JOIN lease l ON l.cluster_id = w.cluster_id AND l.ended_at IS NULL
WHERE w.volume_id = @volume_id;

-- name: VolumeSizes :many
SELECT id, size_limit FROM volume WHERE org_id = @org_id AND id = ANY(@ids::uuid[]) AND deleted_at IS NULL;
