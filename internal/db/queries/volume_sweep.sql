-- Collection of packs, and the metering of what is stored.

-- name: SweepableDomains :many
-- Domains in which there may be something to collect. after pages through them. An erased domain is left out once it is empty.
SELECT id FROM data_domain
WHERE id > @after AND emptied_at IS NULL AND (next_pack > 1 OR erased_at IS NOT NULL) ORDER BY id LIMIT 200;

-- name: SetDomainEmptied :exec
-- Notes that a locked domain is erased and that nothing of it is in the store, nor can be sent there any more.
UPDATE data_domain d SET emptied_at = clock_timestamp()
WHERE d.id = @id AND d.erased_at IS NOT NULL AND d.emptied_at IS NULL
  AND NOT EXISTS (SELECT FROM data_pack p WHERE p.domain_id = d.id)
  AND NOT EXISTS (SELECT FROM data_session x WHERE x.domain_id = d.id AND x.closed_at IS NULL AND x.expires_at > statement_timestamp());

-- name: NeededPacks :many
-- The sets that keep packs: living snapshots, and sessions that live. One that reads on demand lives as long as its run,
-- however long its host is silent.
SELECT s.packs FROM volume_snapshot s JOIN volume v ON v.id = s.volume_id
WHERE v.domain_id = @domain_id AND v.deleted_at IS NULL AND s.deleted_at IS NULL
UNION ALL
SELECT x.base_packs FROM data_session x WHERE x.domain_id = @domain_id AND x.closed_at IS NULL AND (x.expires_at > clock_timestamp()
    OR x.mode = 'ro' AND EXISTS (SELECT FROM lease l
        JOIN volume_mount m ON m.cluster_id = l.cluster_id AND m.volume_id = x.volume_id AND m.lazy
        WHERE l.id = x.lease_id AND l.epoch = x.epoch AND l.gone_at IS NULL
          AND (l.ended_at IS NULL OR l.ended_at > clock_timestamp() - make_interval(secs => @flush_s::double precision))));

-- name: LivePacks :many
SELECT n FROM data_pack WHERE domain_id = @domain_id AND state = 'live' ORDER BY n;

-- name: DoomPacks :one
-- Returns their bytes.
WITH gone AS (
    UPDATE data_pack SET state = 'doomed', doomed_at = @at
    WHERE domain_id = @domain_id AND n = ANY(@ns::bigint[]) AND state = 'live' RETURNING bytes)
SELECT coalesce(sum(bytes), 0)::bigint FROM gone;

-- name: DoomAbandoned :one
-- Granted packs that no commit will name: of a session that was closed, or of an upload that is over, and of one that is
-- silent, once its URL has expired, which may return. An upload of a person may be resumed for a day after its last request,
-- and is over after three. What was sure not to return needs no grace. Returns what they count as granted, and how many.
WITH gone AS (
    UPDATE data_pack p SET state = 'doomed',
           doomed_at = CASE WHEN x.closed_at IS NOT NULL OR x.lease_id IS NULL AND x.opened_at < sqlc.arg(at)::timestamptz - interval '3 days'
                            THEN @long_ago::timestamptz ELSE @at::timestamptz END
    FROM data_session x
    WHERE p.domain_id = @domain_id AND p.state = 'granted' AND x.id = p.session_id
      AND (x.closed_at IS NOT NULL OR x.lease_id IS NULL AND x.opened_at < sqlc.arg(at)::timestamptz - interval '3 days'
        OR p.url_until < @at::timestamptz
           AND x.expires_at + CASE WHEN x.lease_id IS NULL THEN interval '1 day' ELSE interval '0' END < @at::timestamptz)
    RETURNING p.bytes)
SELECT coalesce(sum(bytes), 0)::bigint AS bytes, count(*) AS packs FROM gone;

-- name: UnseenPacks :many
-- Granted packs that may be in the store by now, and that no look has found there: of requests to store them that have not expired
-- for long. One that is signed again and again counts, too: otherwise who asks for that is never billed.
SELECT domain_id, n, sha256, bytes FROM data_pack
WHERE domain_id = @domain_id AND state = 'granted' AND verified_at IS NULL AND n > @after::bigint
  AND url_until > statement_timestamp() - interval '2 hours'
ORDER BY n LIMIT @most;

-- name: DeletablePacks :many
-- Doomed for long enough, or being deleted before a crash. From here on no commit finds them.
UPDATE data_pack SET state = 'deleting'
WHERE domain_id = @domain_id AND (state = 'deleting' OR state = 'doomed' AND doomed_at < @before AND url_until < @at)
RETURNING n;

-- name: DeletePackRow :exec
-- Locks the domain before the pack, as everything else does: the domain counts its packs.
WITH d AS (SELECT id FROM data_domain WHERE id = @domain_id FOR UPDATE)
DELETE FROM data_pack p USING d WHERE p.domain_id = d.id AND p.n = @n AND p.state = 'deleting';

-- name: DropReservations :exec
DELETE FROM data_reservation r USING data_session x
WHERE r.domain_id = @domain_id AND x.id = r.session_id AND (x.closed_at IS NOT NULL
    OR x.expires_at + CASE WHEN x.lease_id IS NULL THEN interval '1 day' ELSE interval '0' END < statement_timestamp());

-- name: VolumesOfDomain :many
SELECT id, head_seq, keep_last FROM volume WHERE domain_id = @domain_id AND deleted_at IS NULL ORDER BY id;

-- name: MetersDue :many
-- scan: moves next_at
-- Takes meters that are due, for as long as one attempt may last. The charge of a meter sets when it is due again. (An array, because
-- a generic plan would join, and read all meters for that.)
UPDATE data_meter m SET next_at = clock_timestamp() + interval '10 minutes'
WHERE m.domain_id = ANY(ARRAY(SELECT d.domain_id FROM data_meter d WHERE d.next_at <= @at ORDER BY d.next_at LIMIT 500
                                FOR UPDATE SKIP LOCKED)::uuid[])
RETURNING m.domain_id, m.unpaid_since;

-- name: PayableMeters :execrows
-- scan: moves next_at
-- Makes meters due whose organisation owes for storage and has credit.
UPDATE data_meter m SET next_at = clock_timestamp()
WHERE m.domain_id = ANY(ARRAY(SELECT u.domain_id FROM data_meter u
    JOIN data_domain d ON d.id = u.domain_id
    JOIN ledger_account a ON a.kind = 'renter_wallet' AND a.owner = d.org_id AND a.currency = @currency
    JOIN ledger_balance b ON b.account_id = a.id
    WHERE u.unpaid_since IS NOT NULL AND u.next_at > statement_timestamp() AND b.amount + b.credit > b.reserved
    ORDER BY u.next_at LIMIT 500 FOR UPDATE OF u SKIP LOCKED)::uuid[]);

-- name: LockDataMeter :one
-- price is the one that the meter was brought to through_at with; -1: none was recorded.
SELECT sqlc.embed(m), d.org_id,
       coalesce((SELECT p.price FROM data_price p WHERE p.domain_id = m.domain_id ORDER BY p.from_at DESC LIMIT 1), -1)::bigint AS price
FROM data_meter m JOIN data_domain d ON d.id = m.domain_id WHERE m.domain_id = @domain_id FOR UPDATE OF m;

-- name: InsertDataPrice :exec
INSERT INTO data_price (domain_id, from_at, price, numerator) VALUES (@domain_id, @from_at, @price, @numerator);

-- name: DataLevels :many
-- The level at from_at, and those that begin after it and before until.
SELECT from_at, bytes, regained FROM data_level l
WHERE l.domain_id = @domain_id AND l.from_at < @until
  AND l.from_at >= coalesce((SELECT max(k.from_at) FROM data_level k WHERE k.domain_id = @domain_id AND k.from_at <= @from_time), '-infinity')
ORDER BY from_at;

-- name: SetMeterDue :exec
UPDATE data_meter SET next_at = clock_timestamp() WHERE domain_id = @domain_id;

-- name: SaveDataMeter :exec
UPDATE data_meter SET through_at = @through_at, numerator = @numerator, posted = @posted, steps = @steps, unpaid_since = sqlc.narg(unpaid_since),
       kept_until = sqlc.narg(kept_until), next_at = sqlc.narg(next_at)
WHERE domain_id = @domain_id;

-- name: SealedDomains :many
SELECT id, key_sealed FROM data_domain
WHERE id > @after AND emptied_at IS NULL AND key_sealed IS NOT NULL ORDER BY id LIMIT @max_rows;

-- name: ResealDomain :execrows
UPDATE data_domain SET key_sealed = @fresh WHERE id = @id AND key_sealed = @stale;
