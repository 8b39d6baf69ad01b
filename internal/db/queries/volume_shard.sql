-- Volumes that every rank of a cluster writes: the copies of the ranks, and what they have prepared.

-- name: StartVolumeRanks :exec
-- A new start of the writing cluster: the copies of the one before are over.
UPDATE volume_writer SET start_epoch = @epoch, start_seq = @seq, merge_packs = '' WHERE volume_id = @volume_id;

-- name: DropVolumeShards :exec
DELETE FROM volume_shard WHERE volume_id = @volume_id;

-- name: SetVolumeShard :exec
INSERT INTO volume_shard (volume_id, rank, session_id, base) VALUES (@volume_id, @rank, @session_id, sqlc.narg(base))
ON CONFLICT (volume_id, rank) DO UPDATE SET session_id = excluded.session_id, base = excluded.base, ended = false,
    prepared_id = NULL, round = '', prepared = NULL, prepared_at = NULL, problem = '', done_id = NULL, done_as = NULL, done_seq = 0, done_at = NULL;

-- name: ShardOfSession :many
SELECT * FROM volume_shard WHERE session_id = @session_id;

-- name: PrepareVolumeShard :exec
UPDATE volume_shard SET prepared_id = @prepared_id, round = @round, prepared = @prepared, prepared_at = clock_timestamp(), problem = ''
WHERE session_id = @session_id;

-- name: ClearVolumeShard :exec
-- What was prepared under an id is withdrawn, or cannot be committed: problem is why.
UPDATE volume_shard SET prepared = NULL, round = '', prepared_at = NULL, problem = @problem
WHERE session_id = @session_id AND prepared_id = @prepared_id;

-- name: CommitVolumeShard :exec
UPDATE volume_shard SET base = prepared -> 'root', ended = @ended, done_id = prepared_id, done_as = @done_as, done_seq = @done_seq, done_at = @at,
    prepared_id = NULL, round = '', prepared = NULL, prepared_at = NULL, problem = ''
WHERE session_id = @session_id;

-- name: VolumeShards :many
-- The ranks of the cluster that writes a volume, with their copies. current: the run that writes it is the rank's present
-- one, of the present start. A rank that is lost and not required any more is not listed.
SELECT n.rank, w.start_seq, w.merge_packs, h.session_id, h.base, h.ended, h.prepared_id, coalesce(h.round, '')::text AS round, h.prepared,
       coalesce(x.base_packs, '')::bytea AS base_packs, x.base_seq,
       coalesce(x.closed_at IS NULL AND x.lease_id = n.lease_id AND x.epoch = l.epoch AND l.gone_at IS NULL AND n.state <> 'lost', false)::boolean AS current
FROM volume_writer w
JOIN node n ON n.cluster_id = w.cluster_id
JOIN lease l ON l.id = n.lease_id
LEFT JOIN volume_shard h ON h.volume_id = w.volume_id AND h.rank = n.rank
LEFT JOIN data_session x ON x.id = h.session_id
WHERE w.volume_id = @volume_id AND l.required
ORDER BY n.rank;

-- name: ShardPacks :many
-- What the copies of all ranks need, those that are lost included.
SELECT x.base_packs FROM volume_shard h JOIN data_session x ON x.id = h.session_id WHERE h.volume_id = @volume_id;

-- name: AddMergePacks :exec
UPDATE volume_writer SET merge_packs = @packs WHERE volume_id = @volume_id;

-- name: LabelUsed :one
-- Whether all ranks have committed a label since the present start.
SELECT EXISTS (SELECT FROM volume_snapshot s JOIN volume_writer w ON w.volume_id = s.volume_id
    WHERE s.volume_id = @volume_id AND s.seq > w.start_seq AND s.whole AND s.label = @label)::boolean;
