-- Sessions of hosts and uploads, packs, commits.

-- name: LeaseOfMount :many
-- The run of a lease, if it is this host's and its cluster has the volume.
SELECT l.epoch, l.ended_at, l.gone_at, l.cluster_id, l.rank, m.mode, v.domain_id
FROM lease l
JOIN volume_mount m ON m.cluster_id = l.cluster_id AND m.volume_id = @volume_id
JOIN volume v ON v.id = m.volume_id AND v.deleted_at IS NULL
WHERE l.id = @lease_id AND l.host_id = @host_id;

-- name: SessionOfRun :many
SELECT * FROM data_session WHERE volume_id = @volume_id AND lease_id = @lease_id AND epoch = @epoch;

-- name: InsertDataSession :one
INSERT INTO data_session (id, volume_id, domain_id, mode, lease_id, epoch, host_id, base_seq, base_packs, expires_at)
VALUES (@id, @volume_id, @domain_id, @mode, sqlc.narg(lease_id), @epoch, sqlc.narg(host_id), @base_seq, @base_packs, @expires_at)
RETURNING *;

-- name: DataSession :many
-- With what fences it: the lease as it is now, and whether it is still the volume's writer. An upload ends after three days,
-- as in DoomAbandoned.
SELECT sqlc.embed(x), l.epoch AS lease_epoch, l.gone_at AS lease_gone_at,
       coalesce(l.ended_at < clock_timestamp() - make_interval(secs => @flush_s::double precision), false)::boolean AS flush_over,
       (x.lease_id IS NULL AND x.mode <> 'ro' AND x.opened_at < clock_timestamp() - interval '3 days')::boolean AS upload_over,
       coalesce(w.session_id = x.id OR x.mode = 'ranks' AND w.cluster_id = l.cluster_id
           AND EXISTS (SELECT FROM volume_shard h WHERE h.session_id = x.id), false)::boolean AS writes, v.deleted_at AS volume_deleted_at
FROM data_session x
JOIN volume v ON v.id = x.volume_id
LEFT JOIN lease l ON l.id = x.lease_id
LEFT JOIN volume_writer w ON w.volume_id = x.volume_id
WHERE x.id = @id;

-- name: CloseDataSessions :exec
-- All of a volume's that write, or all that only read, but one.
UPDATE data_session SET closed_at = clock_timestamp()
WHERE volume_id = @volume_id AND (mode = 'ro') = @readers::boolean AND closed_at IS NULL AND id <> @but;

-- name: CloseSessionsOfLease :exec
-- A lease that is started again has one session.
UPDATE data_session SET closed_at = clock_timestamp()
WHERE volume_id = @volume_id AND lease_id = @lease_id AND epoch < @epoch AND closed_at IS NULL;

-- name: CloseDataSession :exec
UPDATE data_session SET closed_at = clock_timestamp(), lost_bytes = @lost_bytes, pending_bytes = 0, flush_eta_s = 0
WHERE id = @id AND closed_at IS NULL;

-- name: RenewDataSession :exec
UPDATE data_session SET expires_at = clock_timestamp() + make_interval(secs => @seconds::double precision)
WHERE id = @id AND closed_at IS NULL;

-- name: ReportDataSession :execrows
UPDATE data_session SET pending_bytes = @pending_bytes, flush_eta_s = @flush_eta_s, sending_id = sqlc.narg(sending_id), sent = @sent,
       total = @total, problem = @problem, reported_at = clock_timestamp(),
       expires_at = clock_timestamp() + make_interval(secs => @seconds::double precision)
WHERE id = @id AND closed_at IS NULL;

-- name: ReserveDataPacks :one
-- The domain is locked.
WITH d AS (UPDATE data_domain SET next_pack = next_pack + @count::bigint WHERE id = @domain_id RETURNING next_pack)
INSERT INTO data_reservation (domain_id, first, count, session_id)
SELECT @domain_id, d.next_pack - @count::bigint, @count::integer, @session_id FROM d
RETURNING first;

-- name: ReservedBy :one
-- How many of these numbers the session reserved.
SELECT count(*) FROM unnest(@ns::bigint[]) n
WHERE EXISTS (SELECT FROM data_reservation r WHERE r.domain_id = @domain_id AND r.session_id = @session_id
              AND n >= r.first AND n < r.first + r.count);

-- name: DataPacks :many
SELECT * FROM data_pack WHERE domain_id = @domain_id AND n = ANY(@ns::bigint[]);

-- name: InsertDataPacks :exec
INSERT INTO data_pack (domain_id, n, session_id, state, sha256, bytes, url_until)
SELECT @domain_id, k.n, @session_id, 'granted', k.sha256, k.bytes, @url_until
FROM (SELECT unnest(@ns::bigint[]) AS n, unnest(@sums::bytea[]) AS sha256, unnest(@sizes::bigint[]) AS bytes) k;

-- name: RenewDataPacks :exec
UPDATE data_pack SET url_until = @url_until WHERE domain_id = @domain_id AND n = ANY(@ns::bigint[]) AND state = 'granted';

-- name: AddDataGranted :exec
UPDATE data_domain SET granted = granted + @bytes WHERE id = @id;

-- name: UnverifiedPacks :many
-- The session's granted packs among these runs that were not found in the store yet.
SELECT p.n, p.sha256, p.bytes FROM (SELECT unnest(@firsts::bigint[]) AS first, unnest(@lasts::bigint[]) AS last) r
JOIN data_pack p ON p.domain_id = @domain_id AND p.n BETWEEN r.first AND r.last
WHERE p.session_id = @session_id AND p.state = 'granted' AND p.verified_at IS NULL
ORDER BY p.n;

-- name: SetPacksVerified :exec
-- The store has shown them. One that was lost or damaged stays so until it was read back whole.
UPDATE data_pack SET verified_at = clock_timestamp(), lost_at = CASE WHEN retry_at IS NULL THEN NULL ELSE lost_at END
WHERE domain_id = @domain_id AND n = ANY(@ns::bigint[]);

-- name: UsablePacks :one
-- How many packs of these runs a commit of the session may refer to: those of its base, and its own. The domain is locked. A
-- pack that was doomed before the store has shown it may never have got there.
SELECT count(*) FROM (SELECT unnest(@firsts::bigint[]) AS first, unnest(@lasts::bigint[]) AS last, unnest(@own::boolean[]) AS own) r
JOIN data_pack p ON p.domain_id = @domain_id AND p.n BETWEEN r.first AND r.last
WHERE p.lost_at IS NULL AND p.verified_at IS NOT NULL AND p.state <> 'deleting'
  AND CASE WHEN r.own THEN p.session_id = @session_id ELSE p.state <> 'granted' END;

-- name: MissingPacks :many
-- Which packs of these runs it may not refer to.
SELECT x.n::bigint FROM (SELECT unnest(@firsts::bigint[]) AS first, unnest(@lasts::bigint[]) AS last, unnest(@own::boolean[]) AS own) r
CROSS JOIN LATERAL generate_series(r.first, least(r.last, r.first + 100000)) AS x(n)
WHERE NOT EXISTS (SELECT FROM data_pack p WHERE p.domain_id = @domain_id AND p.n = x.n AND p.lost_at IS NULL
    AND p.verified_at IS NOT NULL AND p.state <> 'deleting'
    AND CASE WHEN r.own THEN p.session_id = @session_id ELSE p.state <> 'granted' END)
ORDER BY x.n LIMIT 1000;

-- name: PromotePacks :one
-- Makes packs of these runs live and returns how many bytes became so, how many of them were granted before, and the byte
-- microseconds of those that were doomed, since then.
WITH old AS (
    SELECT p.n, p.state, p.bytes, p.doomed_at FROM (SELECT unnest(@firsts::bigint[]) AS first, unnest(@lasts::bigint[]) AS last) r
    JOIN data_pack p ON p.domain_id = @domain_id AND p.n BETWEEN r.first AND r.last AND p.state IN ('granted', 'doomed')
), set_live AS (
    UPDATE data_pack p SET state = 'live', doomed_at = NULL FROM old WHERE p.domain_id = @domain_id AND p.n = old.n
)
SELECT coalesce(sum(bytes), 0)::bigint AS bytes, coalesce(sum(bytes) FILTER (WHERE state = 'granted'), 0)::bigint AS granted,
       trunc(coalesce(sum(bytes * greatest(0, extract(epoch FROM sqlc.arg(at)::timestamptz - doomed_at) * 1000000)) FILTER (WHERE state = 'doomed' AND doomed_at > 'epoch'), 0))::numeric AS regained
FROM old;

-- name: AddDataBytes :exec
UPDATE data_domain SET bytes = bytes + @bytes, granted = granted - @granted WHERE id = @id;

-- name: SetDataLevel :exec
-- What is billed of a locked domain from a moment on: what it stores, without the packs that the store has lost or damaged,
-- and with those that it has shown and no commit has named yet. Levels never change: a second one of the same moment begins a
-- microsecond later.
INSERT INTO data_level (domain_id, from_at, bytes, regained)
SELECT d.id, greatest(@from_at, (SELECT max(l.from_at) + interval '1 microsecond' FROM data_level l WHERE l.domain_id = d.id)) AS from_at,
       d.bytes - (SELECT coalesce(sum(p.bytes), 0)::bigint FROM data_pack p
    WHERE p.domain_id = d.id AND p.lost_at IS NOT NULL AND p.state = 'live')
    + (SELECT coalesce(sum(g.bytes), 0)::bigint FROM data_pack g
    WHERE g.domain_id = d.id AND g.state = 'granted' AND g.verified_at IS NOT NULL) AS bytes, @regained::numeric
FROM data_domain d WHERE d.id = @domain_id;

-- name: InsertDataMeter :exec
INSERT INTO data_meter (domain_id, through_at, next_at) VALUES (@domain_id, @through_at, @next_at)
ON CONFLICT (domain_id) DO UPDATE SET next_at = excluded.next_at WHERE data_meter.next_at IS NULL;

-- name: InsertSnapshot :exec
INSERT INTO volume_snapshot (volume_id, seq, id, root_id, root_pack, root_offset, root_length, root_size, packs, logical_bytes,
    added_bytes, files, left_out, cut_at, committed_at, cause, consistency, label, lease_id, epoch, whole)
VALUES (@volume_id, @seq, @id, @root_id, @root_pack, @root_offset, @root_length, @root_size, @packs, @logical_bytes,
    @added_bytes, @files, @left_out, @cut_at, @committed_at, @cause, @consistency, @label, sqlc.narg(lease_id), @epoch, @whole);

-- name: MoveVolumeHead :exec
UPDATE volume SET head_seq = @seq, wanted_id = nullif(wanted_id, @snapshot), wanted_at = CASE WHEN wanted_id = @snapshot THEN NULL ELSE wanted_at END
WHERE id = @id;

-- name: MoveSessionBase :exec
UPDATE data_session SET base_seq = @seq, base_packs = @packs, pending_bytes = 0, flush_eta_s = 0, problem = '',
       expires_at = clock_timestamp() + make_interval(secs => @seconds::double precision)
WHERE id = @id;

-- name: CommittedSnapshot :many
-- Also one that was deleted since.
SELECT volume_id, seq, committed_at FROM volume_snapshot WHERE id = @id;

-- name: DomainRoom :one
-- Whose a locked domain is, what it has in the store or was granted, what nothing needs any more included, and what its
-- volumes may have: their sizes for each snapshot that is kept by number or of an hour of a day, and one that is being sent.
SELECT d.org_id, greatest(d.packs * @least_pack::bigint, d.bytes + d.granted + (SELECT coalesce(sum(p.bytes), 0) FROM data_pack p
           WHERE p.domain_id = d.id AND p.state IN ('doomed', 'deleting')))::bigint AS stored,
       (SELECT coalesce(sum(v.size_limit::numeric * (v.keep_last + @more::integer)), 0) FROM volume v
           WHERE v.domain_id = d.id AND v.deleted_at IS NULL)::numeric AS room
FROM data_domain d WHERE d.id = @id;

-- name: CountSnapshots :one
SELECT count(*) FROM volume_snapshot WHERE volume_id = @volume_id AND deleted_at IS NULL;

-- name: DomainOfVolume :one
SELECT d.* FROM data_domain d JOIN volume v ON v.domain_id = d.id WHERE v.id = @volume_id;
