-- name: InsertLease :exec
-- With its first price and an empty meter.
WITH l AS (
    INSERT INTO lease (id, cluster_id, node_id, rank, host_id, renter_org_id, host_org_id, gpu_count, gpu_model, gpu_ids,
                       cpu_cores, ram_mb, disk_gb, scratch_gb, currency, host_share_ppm, epoch, run_until, covered_from_ms)
    VALUES (@id, @cluster_id, @node_id, @rank, @host_id, @renter_org_id, @host_org_id, @gpu_count, @gpu_model, @gpu_ids,
            @cpu_cores, @ram_mb, @disk_gb, @scratch_gb, @currency, @host_share_ppm, @epoch, sqlc.narg(run_until), @covered_from_ms)
    RETURNING id
), p AS (
    INSERT INTO lease_price (lease_id, from_ms, rate, items) SELECT id, 0, @rate, @items FROM l
)
INSERT INTO lease_meter (lease_id) SELECT id FROM l;

-- name: SetLeaseEpoch :execrows
UPDATE lease SET epoch = @epoch WHERE id = @id AND ended_at IS NULL AND epoch <= @epoch;

-- name: SetLeaseRequired :execrows
UPDATE lease SET required = @required WHERE id = @id;

-- name: LiveLeaseIDs :many
SELECT id FROM lease WHERE cluster_id = $1 AND ended_at IS NULL ORDER BY id;

-- name: EndLease :exec
-- Never before time that may have been posted.
UPDATE lease l
SET ended_at = greatest(@at::timestamptz, (
    SELECT max(to_timestamp(coalesce(w.closed_ms, w.confirmed_until_ms) / 1000.0)) FROM cluster_window w WHERE w.cluster_id = l.cluster_id))
WHERE l.id = @id AND l.ended_at IS NULL;

-- name: SetLeaseGone :exec
UPDATE lease SET gone_at = clock_timestamp() WHERE id = $1 AND gone_at IS NULL;

-- name: SetLeaseGPUsFree :exec
-- scratch_gb is what of the lease's scratch was the node's own, and is free with the GPUs.
UPDATE lease l SET gpus_free_at = clock_timestamp(), flush_gb = k.gb,
       flush_gpu_thousandths = 1000 * (SELECT count(*) FROM gpu g
           WHERE g.host_id = l.host_id AND g.present AND g.removed_at IS NULL AND g.parent_id IS NULL) * k.gb / greatest(k.of_gb, k.gb, 1)
FROM (SELECT x.id, greatest(x.scratch_gb - @scratch_gb::bigint, 0) AS gb, h.scratch_gb AS of_gb
      FROM lease x JOIN host h ON h.id = x.host_id WHERE x.id = @id) k
WHERE l.id = k.id AND l.ended_at IS NOT NULL AND l.gone_at IS NULL AND l.gpus_free_at IS NULL;

-- name: LeaseIDsOfCluster :many
SELECT id FROM lease WHERE cluster_id = $1 ORDER BY id;

-- name: UnsettledLeaseIDsOfOrg :many
SELECT id FROM lease WHERE renter_org_id = $1 AND settled_at IS NULL ORDER BY id;

-- name: UnsettledLeaseIDsOfOperator :many
SELECT id FROM lease WHERE host_org_id = $1 AND settled_at IS NULL ORDER BY id;

-- name: UnsettledLeaseIDs :many
SELECT id FROM lease WHERE settled_at IS NULL ORDER BY id;

-- name: LeasesByID :many
SELECT id, cluster_id, rank, host_id, renter_org_id, host_org_id, gpu_count, gpu_model, currency, host_share_ppm, epoch,
       run_until, covered_from_ms, created_at, ended_at, settled_at
FROM lease
WHERE id = ANY(@ids::uuid[])
ORDER BY id;

-- name: LeasesWithWindows :many
-- What changes of leases, once for each of their windows that end after since, or once if there is none (n is 0).
SELECT l.id, l.epoch, l.run_until, l.covered_from_ms, l.created_at, l.ended_at, l.settled_at, coalesce(w.n, 0)::bigint AS n,
       coalesce(w.opened_ms, 0)::bigint AS opened_ms, coalesce(w.confirmed_until_ms, 0)::bigint AS confirmed_until_ms,
       w.closed_ms, w.doubt_from_ms, w.limit_ms
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@since::bigint[]) AS since) u
JOIN lease l ON l.id = u.id
LEFT JOIN LATERAL (
    SELECT k.n, k.opened_ms, k.confirmed_until_ms, k.closed_ms, k.doubt_from_ms, k.limit_ms FROM cluster_window k
    WHERE k.cluster_id = l.cluster_id AND coalesce(k.closed_ms, 9223372036854775807) > u.since
    OFFSET 0) w ON true
ORDER BY l.id, w.n;

-- name: ClusterOfLease :one
SELECT cluster_id FROM lease WHERE id = $1;

-- name: LockMetersOfCluster :many
SELECT lease_id, settled_through_ms, proven_ms, billed_ms, numerator, posted, posted_billed_ms, host_posted, energy_mj, frozen,
       unposted_since_ms, run_key, run_seq
FROM lease_meter
WHERE lease_id IN (SELECT id FROM lease WHERE cluster_id = $1)
ORDER BY lease_id
FOR UPDATE;

-- name: LockMetersOfHosts :many
-- Of pairs of lease and host, those where the lease is the host's.
SELECT m.lease_id, m.settled_through_ms, m.proven_ms, m.billed_ms, m.numerator, m.posted, m.posted_billed_ms, m.host_posted,
       m.energy_mj, m.frozen, m.unposted_since_ms, m.run_key, m.run_seq
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@hosts::uuid[]) AS host_id) u
JOIN lease l ON l.id = u.id AND l.host_id = u.host_id
JOIN lease_meter m ON m.lease_id = l.id
ORDER BY m.lease_id
FOR UPDATE OF m;

-- name: MetersByID :many
-- With whether each was final when it was read.
SELECT sqlc.embed(m), l.settled_at
FROM lease_meter m JOIN lease l ON l.id = m.lease_id
WHERE m.lease_id = ANY(@ids::uuid[])
ORDER BY m.lease_id;

-- name: MetersOfClusters :many
-- MetersByID of all leases of these clusters.
SELECT sqlc.embed(m), l.settled_at
FROM lease_meter m JOIN lease l ON l.id = m.lease_id
WHERE l.cluster_id = ANY(@clusters::uuid[])
ORDER BY m.lease_id;

-- name: UpdateMeters :exec
UPDATE lease_meter m
SET settled_through_ms = u.settled_through_ms, proven_ms = u.proven_ms::bigint[], billed_ms = u.billed_ms, numerator = u.numerator,
    posted = u.posted, posted_billed_ms = u.posted_billed_ms, host_posted = u.host_posted, energy_mj = u.energy_mj, frozen = u.frozen,
    unposted_since_ms = u.unposted_since_ms, run_key = u.run_key, run_seq = u.run_seq
FROM (SELECT unnest(@leases::uuid[]) AS lease_id, unnest(@settled::bigint[]) AS settled_through_ms,
             unnest(@proven::text[]) AS proven_ms, -- array literals: unnest would flatten arrays
             unnest(@billed::bigint[]) AS billed_ms, unnest(@numerators::numeric[]) AS numerator, unnest(@posted::bigint[]) AS posted,
             unnest(@posted_billed::bigint[]) AS posted_billed_ms, unnest(@host_posted::bigint[]) AS host_posted,
             unnest(@energies::bigint[]) AS energy_mj, unnest(@frozen::boolean[]) AS frozen,
             unnest(@unposted_since::bigint[]) AS unposted_since_ms, unnest(@run_keys::uuid[]) AS run_key,
             unnest(@run_seqs::bigint[]) AS run_seq) u
WHERE m.lease_id = u.lease_id;

-- name: UnfreezeMeter :exec
UPDATE lease_meter SET frozen = false WHERE lease_id = $1;

-- name: FrozenLeases :many
-- The operator's leases whose money waits.
SELECT l.id
FROM lease_meter m JOIN lease l ON l.id = m.lease_id
WHERE m.frozen AND l.host_org_id = $1
ORDER BY l.id;

-- name: FrozenMeters :many
-- scan: page
-- All leases whose money waits, and who is party to them.
SELECT l.id, l.cluster_id, l.rank, l.host_id, h.name AS host_name, l.renter_org_id, l.host_org_id
FROM lease_meter m
JOIN lease l ON l.id = m.lease_id
JOIN host h ON h.id = l.host_id
WHERE m.frozen
ORDER BY l.id
LIMIT @max_rows;

-- name: ConflictsOf :many
-- The segments of leases that are stored under these numbers.
SELECT q.lease_id, q.payload, q.received_at
FROM segment_quarantine q
WHERE q.lease_id = ANY(@ids::uuid[]) AND q.reason = 'conflict'
ORDER BY q.id;

-- name: SegmentTimes :many
SELECT s.lease_id, s.epoch, s.boot_id, s.seq, s.start_ms, s.end_ms
FROM (SELECT unnest(@leases::uuid[]) AS lease_id, unnest(@epochs::integer[]) AS epoch,
             unnest(@boots::text[]) AS boot_id, unnest(@seqs::bigint[]) AS seq) u
JOIN usage_segment s ON s.lease_id = u.lease_id AND s.epoch = u.epoch AND s.boot_id = u.boot_id AND s.seq = u.seq;

-- name: ListQuarantine :many
-- Segments that were refused, newest first.
SELECT q.id, q.host_id, q.lease_id, q.reason, q.payload, q.received_at
FROM segment_quarantine q
WHERE @before::bigint = 0 OR q.id < @before::bigint
ORDER BY q.id DESC
LIMIT @max_rows;

-- name: LeasePrices :many
SELECT lease_id, from_ms, rate FROM lease_price WHERE lease_id = ANY(@ids::uuid[]) ORDER BY lease_id, from_ms;

-- name: LeasePriceItems :many
SELECT p.lease_id, p.from_ms, p.rate, p.items
FROM lease_price p JOIN lease l ON l.id = p.lease_id
WHERE l.cluster_id = $1
ORDER BY l.rank, p.lease_id, p.from_ms;

-- name: WindowsOfLeases :many
-- Those that end after since, by cluster and time; of several leases of one cluster the earliest since counts.
SELECT w.cluster_id, w.n, w.opened_ms, w.confirmed_until_ms, w.closed_ms, w.doubt_from_ms, w.limit_ms
FROM (
    SELECT l.cluster_id, min(u.since) AS since
    FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@since::bigint[]) AS since) u
    JOIN lease l ON l.id = u.id
    GROUP BY l.cluster_id
) c
CROSS JOIN LATERAL (
    SELECT k.cluster_id, k.n, k.opened_ms, k.confirmed_until_ms, k.closed_ms, k.doubt_from_ms, k.limit_ms FROM cluster_window k
    WHERE k.cluster_id = c.cluster_id AND coalesce(k.closed_ms, 9223372036854775807) > c.since
    OFFSET 0) w
ORDER BY w.cluster_id, w.n;

-- name: LastWindow :one
-- The window that runs now, or the one whose time ends last.
SELECT cluster_id, n, opened_ms, confirmed_until_ms, closed_ms, doubt_from_ms, limit_ms
FROM cluster_window
WHERE cluster_id = $1
ORDER BY coalesce(limit_ms, closed_ms, 9223372036854775807) DESC, n DESC
LIMIT 1;

-- name: PendingWindows :many
SELECT cluster_id, n, opened_ms, confirmed_until_ms, closed_ms, doubt_from_ms, limit_ms
FROM cluster_window
WHERE cluster_id = $1 AND closed_ms IS NULL AND limit_ms IS NOT NULL
ORDER BY opened_ms, n;

-- name: InsertPending :exec
INSERT INTO cluster_window (cluster_id, n, opened_ms, confirmed_until_ms, limit_ms)
SELECT @cluster_id, coalesce(max(n), 0) + 1, @opened_ms, @opened_ms, @limit_ms FROM cluster_window WHERE cluster_id = @cluster_id;

-- name: InsertClosedWindow :exec
INSERT INTO cluster_window (cluster_id, n, opened_ms, confirmed_until_ms, closed_ms)
SELECT @cluster_id, coalesce(max(n), 0) + 1, @opened_ms, @opened_ms, @closed_ms FROM cluster_window WHERE cluster_id = @cluster_id;

-- name: DoubtWindow :exec
UPDATE cluster_window SET doubt_from_ms = @doubt_from_ms::bigint, confirmed_until_ms = @doubt_from_ms::bigint
WHERE cluster_id = @cluster_id AND n = @n AND closed_ms IS NULL AND doubt_from_ms IS NULL;

-- name: ClusterCover :one
-- What bounds a window: the earliest run_until of the live leases (0: one has none yet), and from when money is held.
-- Once all have ended, their last moment: the window of an ended run is closed when its hosts have reported up to it.
SELECT coalesce(floor(extract(epoch FROM CASE
           WHEN bool_and(ended_at IS NOT NULL) THEN max(least(run_until, ended_at)) FILTER (WHERE run_until IS NOT NULL)
           ELSE min(coalesce(run_until, 'epoch')) FILTER (WHERE ended_at IS NULL) END) * 1000), 0)::bigint AS run_until_ms,
       coalesce(max(covered_from_ms) FILTER (WHERE ended_at IS NULL), 0)::bigint AS covered_from_ms
FROM lease
WHERE cluster_id = $1;

-- name: InsertWindow :exec
INSERT INTO cluster_window (cluster_id, n, opened_ms, confirmed_until_ms)
SELECT @cluster_id, coalesce(max(n), 0) + 1, @opened_ms, @opened_ms FROM cluster_window WHERE cluster_id = @cluster_id;

-- name: AdvanceWindow :exec
UPDATE cluster_window SET confirmed_until_ms = @confirmed_until_ms
WHERE cluster_id = @cluster_id AND n = @n AND confirmed_until_ms < @confirmed_until_ms AND closed_ms IS NULL;

-- name: AdvanceWindows :exec
-- AdvanceWindow of the open windows of several clusters that are not in doubt.
UPDATE cluster_window w SET confirmed_until_ms = u.ms
FROM (SELECT unnest(@clusters::uuid[]) AS id, unnest(@confirmed_ms::bigint[]) AS ms) u
WHERE w.cluster_id = u.id AND w.closed_ms IS NULL AND w.limit_ms IS NULL AND w.doubt_from_ms IS NULL AND w.confirmed_until_ms < u.ms;

-- name: CloseWindow :exec
UPDATE cluster_window SET closed_ms = @closed_ms WHERE cluster_id = @cluster_id AND n = @n AND closed_ms IS NULL;

-- name: SetRunUntil :exec
UPDATE lease SET run_until = @run_until, covered_from_ms = @covered_from_ms WHERE cluster_id = @cluster_id AND ended_at IS NULL;

-- name: SettleLeases :exec
UPDATE lease SET settled_at = clock_timestamp() WHERE id = ANY(@ids::uuid[]) AND settled_at IS NULL;

-- name: AttestKeys :many
SELECT host_id, attest_key FROM host_key WHERE host_id = ANY(@hosts::uuid[]) AND revoked_at IS NULL;

-- name: NewestAnchors :many
-- scan: lookup
-- The last anchor of each boot.
SELECT a.host_id, a.boot_id, a.number, a.boot_ms, a.server_ms, a.created_at
FROM (SELECT unnest(@hosts::uuid[]) AS host_id, unnest(@boots::text[]) AS boot_id) u
CROSS JOIN LATERAL (
    SELECT t.host_id, t.boot_id, t.number, t.boot_ms, t.server_ms, t.created_at FROM time_anchor t
    WHERE t.host_id = u.host_id AND t.boot_id = u.boot_id
    ORDER BY t.number DESC
    LIMIT 1) a;

-- name: AnchorsOfHosts :many
SELECT a.host_id, a.boot_id, a.number, a.boot_ms, a.server_ms, a.created_at
FROM (SELECT unnest(@hosts::uuid[]) AS host_id, unnest(@boots::text[]) AS boot_id, unnest(@numbers::bigint[]) AS number) u
JOIN time_anchor a ON a.host_id = u.host_id AND a.boot_id = u.boot_id AND a.number = u.number;

-- name: InsertAnchors :many
-- The answer is those whose numbers were free.
INSERT INTO time_anchor (host_id, boot_id, number, boot_ms, server_ms)
SELECT unnest(@hosts::uuid[]), unnest(@boots::text[]), unnest(@numbers::bigint[]), unnest(@boot_ms::bigint[]), unnest(@server_ms::bigint[])
ON CONFLICT DO NOTHING
RETURNING host_id, boot_id, number, boot_ms, server_ms, created_at;

-- name: KnownSegments :many
-- Of runs of numbers, those that are there. (OFFSET 0: one lookup by key per run, also by a plan made while the table was
-- small.)
SELECT s.lease_id, s.epoch, s.boot_id, s.seq, s.payload_hash
FROM (SELECT unnest(@leases::uuid[]) AS lease_id, unnest(@epochs::integer[]) AS epoch,
             unnest(@boots::text[]) AS boot_id, unnest(@firsts::bigint[]) AS first, unnest(@lasts::bigint[]) AS last) u
CROSS JOIN LATERAL (
    SELECT k.lease_id, k.epoch, k.boot_id, k.seq, k.payload_hash FROM usage_segment k
    WHERE k.lease_id = u.lease_id AND k.epoch = u.epoch AND k.boot_id = u.boot_id AND k.seq BETWEEN u.first AND u.last
    OFFSET 0) s;

-- name: LastNumbers :many
-- The highest number that is stored of each run, in their order; 0: none is.
SELECT coalesce((
    SELECT max(k.seq) FROM usage_segment k WHERE k.lease_id = u.lease_id AND k.epoch = u.epoch AND k.boot_id = u.boot_id), 0)::bigint AS last
FROM (SELECT unnest(@leases::uuid[]) AS lease_id, unnest(@epochs::integer[]) AS epoch, unnest(@boots::text[]) AS boot_id,
             generate_subscripts(@leases::uuid[], 1) AS n) u
ORDER BY u.n;

-- name: NewBatchNumbers :many
SELECT nextval('segment_batch_id')::bigint AS id FROM generate_series(1, @count::integer);

-- name: InsertSegmentBatches :exec
INSERT INTO segment_batch (id, signature, hashes)
SELECT unnest(@ids::bigint[]), unnest(@signatures::bytea[]), unnest(@hashes::bytea[]);

-- name: SegmentBatches :many
SELECT id, signature, hashes FROM segment_batch WHERE id = ANY(@ids::bigint[]);

-- name: InsertSegments :exec
INSERT INTO usage_segment (lease_id, epoch, boot_id, seq, anchor, boot_end_ms, start_ms, end_ms, energy_mj, final,
                           payload_hash, signature, batch, batch_position, up, facts)
SELECT unnest(@leases::uuid[]), unnest(@epochs::integer[]), unnest(@boots::text[]), unnest(@seqs::bigint[]),
       unnest(@anchors::bigint[]), unnest(@boot_ends::bigint[]), unnest(@starts::bigint[]), unnest(@ends::bigint[]),
       unnest(@energies::bigint[]), unnest(@finals::boolean[]), unnest(@hashes::bytea[]), unnest(@signatures::bytea[]),
       unnest(@batches::bigint[]), unnest(@positions::smallint[]), unnest(@ups::boolean[]), nullif(unnest(@facts::text[]), '')::jsonb;

-- name: InsertDeafSpans :exec
-- Those about ranks that the lease's cluster has, but for the lease's own.
INSERT INTO deaf_span (lease_id, epoch, peer, from_ms, to_ms)
SELECT u.lease_id, u.epoch, u.peer, u.from_ms, u.to_ms
FROM (SELECT unnest(@leases::uuid[]) AS lease_id, unnest(@epochs::integer[]) AS epoch, unnest(@peers::integer[]) AS peer,
             unnest(@from_ms::bigint[]) AS from_ms, unnest(@to_ms::bigint[]) AS to_ms) u
JOIN lease l ON l.id = u.lease_id
WHERE u.peer <> l.rank AND EXISTS (SELECT FROM lease o WHERE o.cluster_id = l.cluster_id AND o.rank = u.peer)
ON CONFLICT DO NOTHING;

-- name: InsertQuarantined :many
-- The zero lease stands for one that does not exist.
INSERT INTO segment_quarantine (host_id, lease_id, reason, payload, payload_hash)
SELECT u.host_id, nullif(u.lease_id, '00000000-0000-0000-0000-000000000000'), u.reason, u.payload, u.payload_hash
FROM (SELECT unnest(@host_ids::uuid[]) AS host_id, unnest(@leases::uuid[]) AS lease_id, unnest(@reasons::text[]) AS reason,
             unnest(@payloads::bytea[]) AS payload, unnest(@hashes::bytea[]) AS payload_hash) u
ON CONFLICT (host_id, payload_hash) DO NOTHING
RETURNING host_id, payload_hash;

-- name: SegmentRuns :many
-- Whether what arrived of each run is without a hole, and whether its final segment is there.
SELECT lease_id, epoch, boot_id, (count(*) = max(seq))::boolean AS whole, bool_or(final)::boolean AS final
FROM usage_segment
WHERE lease_id = ANY(@ids::uuid[])
GROUP BY lease_id, epoch, boot_id;

-- name: SegmentsOfLeases :many
SELECT lease_id, epoch, boot_id, seq, start_ms, end_ms, energy_mj
FROM usage_segment
WHERE lease_id = ANY(@ids::uuid[])
ORDER BY lease_id, start_ms, end_ms, epoch, boot_id, seq;

-- name: SegmentsWithin :many
-- Those that prove some time between two moments, unix ms.
SELECT lease_id, epoch, boot_id, seq, start_ms, end_ms, energy_mj, up, (facts IS NOT NULL)::boolean AS has_facts
FROM usage_segment
WHERE lease_id = @lease_id AND end_ms > @from_ms AND start_ms < @through_ms
ORDER BY start_ms, end_ms, epoch, boot_id, seq;

-- name: RunningLeasesOfHost :many
SELECT id FROM lease WHERE host_id = @host_id AND ended_at IS NULL ORDER BY id;

-- name: DatabaseTime :one
SELECT clock_timestamp()::timestamptz AS now;

-- name: AdminOrgs :many
-- scan: lookup
-- Where the platform's admins read their notices: the org that each of them signed up with, not one that they joined.
SELECT DISTINCT h.org_id
FROM app_user u
CROSS JOIN LATERAL (SELECT m.org_id FROM membership m JOIN org o ON o.id = m.org_id
    WHERE m.user_id = u.id AND o.personal AND m.role = 'owner' ORDER BY m.created_at, m.org_id LIMIT 1) h
WHERE u.admin
ORDER BY h.org_id;

-- name: CountSegmentsOfCluster :one
-- How many segments a cluster's leases have, counted up to most.
SELECT count(*) FROM (SELECT FROM usage_segment s JOIN lease l ON l.id = s.lease_id WHERE l.cluster_id = @cluster_id LIMIT @most) c;

-- name: LeaseIDsOfHost :many
SELECT id FROM lease WHERE host_id = $1 ORDER BY id;

-- name: AllAttestKeys :many
-- Revoked ones too: what they signed in their time stays signed.
SELECT host_id, attest_key FROM host_key WHERE host_id = ANY(@hosts::uuid[]) ORDER BY host_id, attest_key;

-- name: SignedSegments :many
SELECT lease_id, epoch, boot_id, seq, anchor, boot_end_ms, start_ms, end_ms, energy_mj, final, signature, batch, batch_position, facts
FROM usage_segment
WHERE lease_id = ANY(@ids::uuid[])
ORDER BY lease_id, start_ms, end_ms, epoch, boot_id, seq;

-- name: AnchorsOfLeases :many
SELECT a.host_id, a.boot_id, a.number, a.boot_ms, a.server_ms
FROM (SELECT DISTINCT l.host_id, s.boot_id, s.anchor
      FROM usage_segment s JOIN lease l ON l.id = s.lease_id
      WHERE s.lease_id = ANY(@ids::uuid[])) u
JOIN time_anchor a ON a.host_id = u.host_id AND a.boot_id = u.boot_id AND a.number = u.anchor
ORDER BY a.host_id, a.boot_id, a.number;

-- name: LeaseParties :one
SELECT cluster_id, renter_org_id, host_org_id FROM lease WHERE id = $1;

-- name: LeaseIDsOfRenter :many
-- Those that lived between two moments. (Ids are in order of creation, and so are leases.)
(SELECT l.id FROM lease l
 WHERE l.renter_org_id = @renter_org_id AND l.settled_at IS NULL AND l.created_at < @to_time::timestamptz)
UNION
(SELECT l.id FROM lease l
 WHERE l.renter_org_id = @renter_org_id AND l.ended_at >= @from_time::timestamptz AND l.created_at < @to_time::timestamptz)
ORDER BY id
LIMIT @max_rows;

-- name: LeaseIDsOfOperator :many
-- Those on an operator's hosts (the zero host: on all of them) that lived between two moments.
(SELECT l.id FROM lease l
 WHERE l.host_org_id = @host_org_id AND l.settled_at IS NULL AND l.created_at < @to_time::timestamptz
   AND (@only_host::uuid = '00000000-0000-0000-0000-000000000000' OR l.host_id = @only_host::uuid))
UNION
(SELECT l.id FROM lease l
 WHERE l.host_org_id = @host_org_id AND l.ended_at >= @from_time::timestamptz AND l.created_at < @to_time::timestamptz
   AND (@only_host::uuid = '00000000-0000-0000-0000-000000000000' OR l.host_id = @only_host::uuid))
ORDER BY id
LIMIT @max_rows;

-- name: FrozenPrices :many
SELECT lease_id, from_ms, rate, items FROM lease_price WHERE lease_id = ANY(@ids::uuid[]) ORDER BY lease_id, from_ms;

-- name: DropOldQuarantine :execrows
-- scan: done
DELETE FROM segment_quarantine WHERE id IN (
    SELECT q.id FROM segment_quarantine q WHERE q.received_at < statement_timestamp() - interval '400 days' LIMIT @max_rows);

-- name: DropOldDeafSpans :execrows
-- scan: done
DELETE FROM deaf_span d USING (
    SELECT o.lease_id, o.epoch, o.peer, o.from_ms, o.to_ms FROM deaf_span o
    WHERE o.received_at < statement_timestamp() - interval '401 days' LIMIT @max_rows) old
WHERE (d.lease_id, d.epoch, d.peer, d.from_ms, d.to_ms) = (old.lease_id, old.epoch, old.peer, old.from_ms, old.to_ms);
