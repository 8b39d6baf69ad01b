-- The scrub of packs in the store, and what it has found. One replica at a time runs it.

-- name: DataCheck :one
SELECT sqlc.embed(c), clock_timestamp()::timestamptz AS now FROM data_check c;

-- name: StoredBytes :one
-- Of all data domains that have a key.
SELECT coalesce(sum(bytes), 0)::bigint FROM data_domain WHERE erased_at IS NULL;

-- name: SetReadCredit :exec
UPDATE data_check SET read_through = @through, read_credit = @credit;

-- name: PacksToLookFor :many
-- scan: moves verified_at by SetPacksVerified alone
-- Packs that neither a listing nor a commit has seen since before. One of which something is wrong is tried again by PacksToRetry.
SELECT domain_id, n, sha256, bytes FROM data_pack
WHERE state = 'live' AND retry_at IS NULL AND verified_at < @since ORDER BY verified_at LIMIT @most;

-- name: PacksToRetry :many
-- scan: moves retry_at by SetPackSilent alone
SELECT domain_id, n, sha256, bytes FROM data_pack
WHERE state = 'live' AND retry_at <= statement_timestamp() ORDER BY retry_at LIMIT @most;

-- name: PacksToRead :many
-- scan: moves read_at by SetPackRead alone
-- Those that were not read back for the longest time.
SELECT domain_id, n, sha256, bytes FROM data_pack
WHERE state = 'live' AND retry_at IS NULL ORDER BY read_at LIMIT @most;

-- name: SetPackRead :execrows
-- The store has returned exactly what was stored. No row: the pack was lost or damaged before (SetPackFound), or is gone.
UPDATE data_pack SET read_at = clock_timestamp(), verified_at = clock_timestamp(), silent_at = NULL, retry_at = NULL
WHERE domain_id = @domain_id AND n = @n AND lost_at IS NULL;

-- name: SetPackFound :execrows
-- The same of a pack that was lost or damaged before. The domain is locked.
UPDATE data_pack SET read_at = clock_timestamp(), verified_at = clock_timestamp(), lost_at = NULL, damaged = false, silent_at = NULL,
       retry_at = NULL
WHERE domain_id = @domain_id AND n = @n AND lost_at IS NOT NULL;

-- name: SetPackSilent :many
-- The store has not answered. The longer it does not, the later it is tried again; no row: the pack is not needed any more.
UPDATE data_pack SET silent_at = coalesce(silent_at, clock_timestamp()),
       retry_at = clock_timestamp() + least(make_interval(secs => @most_s::double precision),
           greatest(make_interval(secs => @least_s::double precision), clock_timestamp() - coalesce(silent_at, clock_timestamp())))
WHERE domain_id = @domain_id AND n = @n AND state = 'live'
RETURNING silent_at;

-- name: SetPacksFlawed :many
-- The store does not have them, or has other bytes. Returns those of which that is new. The domain is locked.
WITH old AS (
    SELECT o.n, o.lost_at IS NULL OR o.damaged <> @damaged::boolean AS fresh FROM data_pack o
    WHERE o.domain_id = @domain_id AND o.n = ANY(@ns::bigint[]) AND o.state = 'live'
), flawed AS (
    UPDATE data_pack p SET lost_at = coalesce(p.lost_at, clock_timestamp()), damaged = @damaged::boolean, silent_at = NULL,
           retry_at = clock_timestamp() + make_interval(secs => @retry_s::double precision)
    FROM old WHERE p.domain_id = @domain_id AND p.n = old.n
)
SELECT n FROM old WHERE fresh ORDER BY n;

-- name: FlawedPacks :many
SELECT n FROM data_pack WHERE domain_id = @domain_id AND lost_at IS NOT NULL AND state = 'live' ORDER BY n;

-- name: FlawedOfVolume :many
-- Packs of a volume's domain that are lost or damaged.
SELECT p.n FROM volume v JOIN data_pack p ON p.domain_id = v.domain_id
WHERE v.id = @volume_id AND p.lost_at IS NOT NULL AND p.state = 'live' ORDER BY p.n;

-- name: VolumesWithPacks :many
SELECT v.id, v.org_id, v.name, s.id AS snapshot_id, s.seq, s.cut_at, s.packs FROM volume v
JOIN volume_snapshot s ON s.volume_id = v.id AND s.deleted_at IS NULL
WHERE v.domain_id = @domain_id AND v.deleted_at IS NULL ORDER BY v.id, s.seq;

-- name: StoreState :one
SELECT c.list_ended, c.failing_at, c.strange, c.example, (SELECT count(*) FROM data_stray) AS unknown FROM data_check c;

-- name: OldestRead :many
-- scan: page
SELECT read_at FROM data_pack WHERE state = 'live' AND retry_at IS NULL ORDER BY read_at LIMIT 1;

-- name: ListFlawedPacks :many
-- scan: page
SELECT domain_id, n, bytes, (CASE WHEN lost_at IS NULL THEN 'silent' WHEN damaged THEN 'damaged' ELSE 'lost' END)::text AS found,
       coalesce(lost_at, silent_at, retry_at)::timestamptz AS since
FROM data_pack WHERE state = 'live' AND retry_at IS NOT NULL ORDER BY domain_id, n LIMIT @most;
