-- The list of the store, compared with the packs that are known. One replica at a time makes it.

-- name: BeginListRound :one
UPDATE data_check SET list_began = clock_timestamp(), list_after = '', strange = 0, example = '' RETURNING list_began;

-- name: MoveListRound :exec
-- What was compared is not compared again in this round, also after a crash.
UPDATE data_check SET list_after = @after::text, failing_at = NULL, strange = strange + @strange::bigint,
       example = CASE WHEN example = '' THEN @example::text ELSE example END;

-- name: EndListRound :one
UPDATE data_check SET whole_from = list_began, list_ended = clock_timestamp(), list_began = NULL, list_after = '', failing_at = NULL
RETURNING whole_from, strange, example;

-- name: FailListRound :one
UPDATE data_check SET failing_at = coalesce(failing_at, clock_timestamp()) RETURNING failing_at::timestamptz;

-- name: ListedPacks :many
-- What is known of listed objects, by their index. State '': no row.
SELECT k.i::bigint AS i, (d.id IS NOT NULL)::boolean AS known,
       coalesce(d.next_pack, 0)::bigint AS next_pack, coalesce(p.state, '')::text AS state, coalesce(p.bytes, 0)::bigint AS bytes
FROM (SELECT unnest(@domains::uuid[]) AS domain_id, unnest(@ns::bigint[]) AS n, unnest(@indexes::bigint[]) AS i) k
LEFT JOIN data_domain d ON d.id = k.domain_id
LEFT JOIN data_pack p ON p.domain_id = k.domain_id AND p.n = k.n;

-- name: SetPacksListed :exec
-- As SetPacksVerified, for packs of several domains.
UPDATE data_pack p SET verified_at = clock_timestamp(), lost_at = CASE WHEN p.retry_at IS NULL THEN NULL ELSE p.lost_at END
FROM (SELECT unnest(@domains::uuid[]) AS domain_id, unnest(@ns::bigint[]) AS n) k
WHERE p.domain_id = k.domain_id AND p.n = k.n AND p.state = 'live';

-- name: RaiseNextPack :exec
-- After a restore the store has numbers that the database has not given yet: they are not given again.
UPDATE data_domain SET next_pack = @next WHERE id = @id AND next_pack < @next;

-- name: RaiseNextPacks :exec
UPDATE data_domain SET next_pack = next_pack + @by::bigint WHERE emptied_at IS NULL;

-- name: SetStoreRestored :exec
UPDATE data_check SET restored_at = clock_timestamp();

-- name: NoteStrays :exec
INSERT INTO data_stray (domain_id, n, bytes, stored_at, try_at)
SELECT k.domain_id, k.n, k.bytes, k.stored_at, clock_timestamp() + make_interval(secs => @keep_s::double precision)
FROM (SELECT unnest(@domains::uuid[]) AS domain_id, unnest(@ns::bigint[]) AS n, unnest(@sizes::bigint[]) AS bytes,
             unnest(@stored::timestamptz[]) AS stored_at) k
ON CONFLICT (domain_id, n) DO UPDATE SET seen_at = excluded.seen_at;

-- name: ForgetStrays :exec
-- Those that a whole round has not seen.
DELETE FROM data_stray WHERE seen_at < @began;

-- name: TakeStrays :many
-- scan: moves try_at
-- Those that were found, and stored, long enough ago. One that cannot be deleted is tried again in an hour.
UPDATE data_stray s SET try_at = clock_timestamp() + interval '1 hour'
FROM (SELECT t.domain_id, t.n FROM data_stray t
      WHERE t.try_at <= statement_timestamp()
        AND greatest(t.found_at, t.stored_at) < statement_timestamp() - make_interval(secs => @keep_s::double precision)
      ORDER BY t.try_at LIMIT @most FOR UPDATE SKIP LOCKED) k
WHERE s.domain_id = k.domain_id AND s.n = k.n
RETURNING s.domain_id, s.n;

-- name: DeletableStray :one
-- Whether nothing knows the number, and nothing can be stored under it any more. The domain is locked.
SELECT (NOT EXISTS (SELECT FROM data_pack p WHERE p.domain_id = @domain_id AND p.n = @n)
    AND NOT EXISTS (SELECT FROM data_reservation r WHERE r.domain_id = @domain_id AND @n >= r.first AND @n < r.first + r.count)
    AND EXISTS (SELECT FROM data_domain d WHERE d.id = @domain_id AND @n < d.next_pack))::boolean;

-- name: ForgetStray :exec
DELETE FROM data_stray WHERE domain_id = @domain_id AND n = @n;
