-- name: InsertCluster :exec
INSERT INTO cluster (id, org_id, created_by, name, project, labels, spec, secrets, image_ref, state, node_count,
                     gpus_per_node, rate, currency, budget, max_duration_s, quote_id, network, created_at, start_deadline, due_at, start_from, start_new)
VALUES (@id, @org_id, @created_by, @name, @project, @labels, @spec, @secrets, @image_ref, 'provisioning', @node_count,
        @gpus_per_node, @rate, @currency, @budget, @max_duration_s, @quote_id, @network, @created_at, @start_deadline, @due_at, @created_at, @start_new);

-- name: LockCluster :one
SELECT sqlc.embed(cluster) FROM cluster WHERE id = @id FOR UPDATE;

-- name: TakeDueClusters :many
-- scan: moves due_at
-- Takes the clusters at which the watchdog must look next. They are due again after again_s unless the look says otherwise, so that
-- a replica that stops loses none. SKIP LOCKED lets replicas share the work.
UPDATE cluster SET due_at = clock_timestamp() + make_interval(secs => @again_s::float8)
WHERE id IN (
    SELECT c.id FROM cluster c
    WHERE c.due_at <= statement_timestamp()
    ORDER BY c.due_at LIMIT @max_rows
    FOR UPDATE SKIP LOCKED)
RETURNING id;

-- name: PostponeCluster :exec
-- A cluster that could not be tended is looked at again later, behind the others.
UPDATE cluster SET due_at = clock_timestamp() + make_interval(secs => @wait_s::float8), full_look_at = 'epoch' WHERE id = @id;

-- name: SaveCluster :exec
UPDATE cluster
SET state = @state, reason = @reason, detail = @detail, image_digest = @image_digest, secrets = @secrets, epoch = @epoch,
    go_at = @go_at, start_deadline = @start_deadline, quick_failures = @quick_failures, money_reason = @money_reason,
    stop_at = @stop_at, network = @network, running_at = @running_at, ended_at = @ended_at, run_until = @run_until,
    due_at = @due_at, settled_at = @settled_at, rate = @rate, replace_until = sqlc.narg(replace_until), replace_note = @replace_note,
    start_from = @start_from, runway_told_s = @runway_told_s, runway_dips = @runway_dips,
    full_look_at = CASE WHEN @looked::boolean THEN clock_timestamp() + interval '4 minutes' + random() * interval '2 minutes' ELSE full_look_at END
WHERE id = @id;

-- name: GetCluster :one
SELECT sqlc.embed(cluster) FROM cluster WHERE id = @id;

-- name: ListClusters :many
SELECT sqlc.embed(cluster) FROM cluster
WHERE org_id = @org_id
  AND (sqlc.narg(before)::uuid IS NULL OR id < sqlc.narg(before)::uuid)
  AND (cardinality(@states::text[]) = 0 OR state = ANY (@states::text[]))
ORDER BY id DESC
LIMIT @max_rows;

-- name: ListLiveClusters :many
SELECT sqlc.embed(cluster) FROM cluster
WHERE org_id = @org_id AND ended_at IS NULL AND (sqlc.narg(before)::uuid IS NULL OR id < sqlc.narg(before)::uuid)
ORDER BY id DESC
LIMIT @max_rows;

-- name: SearchClusters :many
-- Clusters that each word matches, by a key. A word matches a part of a name, project, label or image, or the end of an id: the bits of
-- mask are those of tail. It reads all clusters of the org.
WITH keyed AS (
    SELECT k.id, CASE @sort::text WHEN 'name' THEN lower(k.name) WHEN 'price' THEN lpad(k.rate::text, 20, '0') WHEN 'project' THEN k.project
                 WHEN 'label' THEN coalesce(k.labels ->> @label::text, '') ELSE '' END AS key
    FROM cluster k WHERE k.org_id = @org_id)
SELECT sqlc.embed(c) FROM keyed JOIN cluster c ON c.id = keyed.id
WHERE (cardinality(@states::text[]) = 0 OR c.state = ANY (@states::text[]))
  AND (sqlc.narg(after)::uuid IS NULL OR CASE WHEN @descending::boolean
       THEN (keyed.key, keyed.id) < (SELECT a.key, a.id FROM keyed a WHERE a.id = sqlc.narg(after)::uuid)
       ELSE (keyed.key, keyed.id) > (SELECT a.key, a.id FROM keyed a WHERE a.id = sqlc.narg(after)::uuid) END)
  AND NOT EXISTS (
    SELECT FROM (SELECT unnest(@words::text[]) AS word, unnest(@tails::bigint[]) AS tail, unnest(@masks::bigint[]) AS mask) w
    WHERE (('x' || right(replace(c.id::text, '-', ''), 12))::bit(48)::bigint & w.mask) <> w.tail
      AND strpos(lower(concat_ws(' ', c.name, c.project, c.image_ref,
              CASE WHEN jsonb_typeof(c.labels) = 'object' THEN (SELECT string_agg(l.key || '=' || l.value, ' ') FROM jsonb_each_text(c.labels) l) END)), w.word) = 0)
ORDER BY CASE WHEN NOT @descending::boolean THEN keyed.key END, CASE WHEN NOT @descending::boolean THEN keyed.id END,
         CASE WHEN @descending::boolean THEN keyed.key END DESC, CASE WHEN @descending::boolean THEN keyed.id END DESC
LIMIT @max_rows;

-- name: UnendedClusters :many
SELECT id FROM cluster WHERE org_id = $1 AND state NOT IN ('releasing', 'released', 'failed') ORDER BY id;

-- name: InsertNode :exec
-- No report about it has arrived yet.
WITH n AS (
    INSERT INTO node (id, cluster_id, rank, host_id, lease_id, epoch, state, address, since)
    VALUES (@id, @cluster_id, @rank, @host_id, @lease_id, 1, 'pending', @address, @since)
    RETURNING id, epoch, since
)
INSERT INTO node_status (node_id, epoch, reported_at) SELECT id, epoch, since FROM n;

-- name: SaveNode :exec
UPDATE node
SET epoch = @epoch, state = @state, reason = @reason, detail = @detail, wg_key = @wg_key, endpoints = @endpoints,
    started_at = @started_at, exit_code = @exit_code, exit_at = @exit_at, preflight = @preflight, since = @since,
    reclaim_told = @reclaim_told, owner_use_told = @owner_use_told, cap_told = @cap_told, leaving_told = @leaving_told,
    uploads_lost_told = @uploads_lost_told
WHERE id = @id;

-- name: ClusterNodes :many
SELECT sqlc.embed(n), sqlc.embed(s), l.gpu_ids, l.gpu_model, l.required, l.run_until, l.ended_at AS lease_ended_at, l.gone_at AS lease_gone_at,
       l.gpus_free_at, l.flush_gpu_thousandths, h.name AS host_name, h.org_id AS operator_id, h.reclaim_at, h.reclaim_asked_at, h.capped_until,
       hs.nats_server AS listener, hs.connected_at, hs.protocol,
       ARRAY(SELECT floor(extract(epoch FROM g.at) * 1000)::bigint FROM gang_strike g
             WHERE g.host_id = n.host_id AND g.kind = 'doubt' AND g.at > statement_timestamp() - interval '2 hours')::bigint[] AS doubts
FROM node n
JOIN node_status s ON s.node_id = n.id
JOIN lease l ON l.id = n.lease_id
JOIN host h ON h.id = n.host_id
JOIN host_status hs ON hs.host_id = n.host_id
WHERE n.cluster_id = ANY (@clusters::uuid[])
ORDER BY n.cluster_id, n.rank;

-- name: WindowState :one
-- Whether a window is open, through when it is confirmed and since when a rank is in doubt in it, unix ms (0: none is), and
-- whether a host has signed that it was deaf to another rank after what is confirmed.
SELECT (count(*) > 0)::boolean AS open, coalesce(max(w.doubt_from_ms), 0)::bigint AS doubt_from_ms,
       coalesce(max(w.confirmed_until_ms), 0)::bigint AS confirmed_until_ms,
       coalesce(bool_or(EXISTS (SELECT FROM lease l JOIN deaf_span d ON d.lease_id = l.id AND d.to_ms > w.confirmed_until_ms
                                WHERE l.cluster_id = w.cluster_id)), false)::boolean AS deaf
FROM cluster_window w WHERE w.cluster_id = @cluster_id AND w.closed_ms IS NULL AND w.limit_ms IS NULL;

-- name: GPUsOfClusters :many
-- The GPUs that the ranks of these clusters have now.
SELECT g.id, g.uuid, g.model
FROM node n JOIN lease l ON l.id = n.lease_id JOIN gpu g ON g.id = ANY (l.gpu_ids)
WHERE n.cluster_id = ANY (@clusters::uuid[]);

-- name: HostLeases :many
-- What this host may speak of: its leases that are not gone, and those it names itself (kept logs outlive a lease).
-- One snapshot, so that revision is the one these rows belong to.
SELECT sqlc.embed(n), sqlc.embed(s), l.id AS lease_id, l.epoch AS lease_epoch, l.ended_at AS lease_ended_at, l.gone_at AS lease_gone_at,
       c.state AS cluster_state, c.epoch AS cluster_epoch, c.go_at, c.stop_at, c.node_count, c.image_digest, h.revision, h.capped_until,
       EXISTS (SELECT FROM node m WHERE m.cluster_id = c.id AND (m.exit_code <> 0 OR m.reason = 'preflight_failed')) AS in_doubt,
       coalesce(r.logs_kept, s.logs_kept)::integer[] AS logs_kept, l.gpus_free_at, l.renter_org_id,
       -- Leases that the host uploads for although their GPUs are free, of all organisations and of this one.
       (CASE WHEN l.ended_at IS NULL THEN 0 ELSE (SELECT count(*) FROM lease u WHERE u.host_id = l.host_id
           AND u.gone_at IS NULL AND u.gpus_free_at IS NOT NULL) END)::integer AS uploads,
       (CASE WHEN l.ended_at IS NULL THEN 0 ELSE (SELECT count(*) FROM lease u WHERE u.host_id = l.host_id
           AND u.gone_at IS NULL AND u.gpus_free_at IS NOT NULL AND u.renter_org_id = l.renter_org_id) END)::integer AS own_uploads
FROM lease l
JOIN node n ON n.id = l.node_id
JOIN node_status s ON s.node_id = n.id
JOIN cluster c ON c.id = l.cluster_id
JOIN host h ON h.id = l.host_id
LEFT JOIN node_replacement r ON r.lost_lease = l.id
WHERE l.host_id = @host_id AND (l.gone_at IS NULL OR l.id = ANY (@named::uuid[]))
ORDER BY l.cluster_id, l.id;

-- name: SaveNodeStatuses :exec
-- Only forward: a report older than the one a row comes from changes nothing.
UPDATE node_status s
SET epoch = r.epoch, last_good_ms = greatest(s.last_good_ms, r.last_good_ms), good = r.good, peers_down = r.peers_down::integer[],
    peers_from_ms = r.peers_from_ms::bigint[],
    unwell_since_ms = CASE WHEN r.good THEN NULL ELSE coalesce(s.unwell_since_ms, floor(extract(epoch FROM @reported_at::timestamptz) * 1000)::bigint) END,
    peers_since_ms = CASE WHEN r.peers_down::integer[] = '{}' THEN NULL WHEN r.peers_down::integer[] = s.peers_down THEN s.peers_since_ms
                          ELSE floor(extract(epoch FROM @reported_at::timestamptz) * 1000)::bigint END,
    image_bytes = greatest(CASE WHEN s.epoch = r.epoch THEN s.image_bytes ELSE 0 END,
                           CASE WHEN r.progress::jsonb ->> 'step' = 'layers' THEN (r.progress::jsonb ->> 'total')::bigint END),
    progress = r.progress::jsonb, paths = r.paths::jsonb, trouble = r.trouble, trouble_detail = r.trouble_detail,
    boot_id = @boot_id, boot_ms = @boot_ms, reported_at = greatest(s.reported_at, @reported_at)
FROM (SELECT unnest(@nodes::uuid[]) AS node_id, unnest(@epochs::integer[]) AS epoch,
             unnest(@good_ms::bigint[]) AS last_good_ms, unnest(@good::boolean[]) AS good,
             unnest(@peers_down::text[]) AS peers_down, -- array literals: unnest would flatten arrays
             unnest(@peers_from_ms::text[]) AS peers_from_ms,
             unnest(@progress::text[]) AS progress, unnest(@paths::text[]) AS paths,
             unnest(@troubles::text[]) AS trouble, unnest(@trouble_details::text[]) AS trouble_detail) r
WHERE s.node_id = r.node_id AND s.epoch <= r.epoch
  AND CASE WHEN s.boot_id = @boot_id THEN s.boot_ms <= @boot_ms ELSE s.reported_at <= @reported_at END;

-- name: SaveLogsKept :exec
UPDATE node_status SET logs_kept = @logs_kept WHERE node_id = @node_id;

-- name: ForgetLogs :exec
-- Logs that a full report no longer shows are gone from the host.
UPDATE node_status s SET logs_kept = '{}'
FROM node n
WHERE n.id = s.node_id AND n.host_id = @host_id AND s.logs_kept <> '{}' AND NOT n.lease_id = ANY (@named::uuid[]);

-- name: ForgetLostLogs :exec
-- The same of leases whose rank went on elsewhere.
UPDATE node_replacement SET logs_kept = '{}' WHERE lost_host = @host_id AND logs_kept <> '{}' AND NOT lost_lease = ANY (@named::uuid[]);

-- name: SaveLostLogsKept :exec
UPDATE node_replacement SET logs_kept = @logs_kept WHERE lost_lease = @lost_lease;

-- name: LeaseFacts :many
-- Everything the desired state of one host is made of.
SELECT sqlc.embed(n), sqlc.embed(c), l.epoch AS lease_epoch, l.gpu_ids, l.cpu_cores, l.ram_mb, l.disk_gb, l.run_until AS lease_run_until,
       coalesce(p.pkey, 0)::integer AS pkey, coalesce(b.name, '')::text AS fabric_name,
       -- Whether its hosts measure their fabric: all of them can, and the same hosts have not measured for another cluster within a day.
       (n.host_id IN (SELECT id FROM host WHERE rdma_nccl) AND (
           SELECT bool_and(h.rdma_nccl) AND NOT coalesce(bool_and(r.last_at > clock_timestamp() - interval '1 day' AND r.last_hosts = c.node_count
                      AND r.last_cluster_id <> c.id) AND count(DISTINCT r.last_cluster_id) = 1, false)
           FROM node m JOIN host h ON h.id = m.host_id LEFT JOIN host_rdma r ON r.host_id = h.id
           WHERE m.cluster_id = c.id))::boolean AS measures_rdma
FROM lease l
JOIN node n ON n.lease_id = l.id
JOIN cluster c ON c.id = l.cluster_id
LEFT JOIN fabric_claim f ON f.ref = l.id AND f.partitioned
LEFT JOIN fabric_partition p ON p.fabric_id = f.fabric_id AND p.cluster_id = l.cluster_id
LEFT JOIN fabric b ON b.id = p.fabric_id
WHERE l.host_id = @host_id AND l.ended_at IS NULL
ORDER BY l.id;

-- name: LiveLeases :many
-- The live leases of a host, with what bounds them and the tokens of their relays.
SELECT l.id, l.epoch, l.rank, l.cluster_id, l.run_until, c.start_deadline, c.node_count
FROM lease l JOIN cluster c ON c.id = l.cluster_id
WHERE l.host_id = @host_id AND l.ended_at IS NULL
ORDER BY l.id;

-- name: PeersOfHost :many
-- The nodes of the clusters that this host has a part in. A rank for which another host is looked for is one that has not joined yet.
SELECT n.cluster_id, n.rank, n.address, (CASE WHEN l.ended_at IS NULL THEN n.wg_key ELSE '' END)::text AS wg_key,
       (CASE WHEN l.ended_at IS NULL THEN n.endpoints ELSE '{}' END)::text[] AS endpoints
FROM node n JOIN lease l ON l.id = n.lease_id JOIN cluster c ON c.id = n.cluster_id
WHERE n.cluster_id IN (SELECT o.cluster_id FROM lease o WHERE o.host_id = @host_id AND o.gone_at IS NULL)
  AND (l.ended_at IS NULL OR l.required AND c.replace_until IS NOT NULL)
ORDER BY n.cluster_id, n.rank;

-- name: LeasedGPUs :many
SELECT id, uuid FROM gpu WHERE id IN (SELECT unnest(o.gpu_ids) FROM lease o WHERE o.host_id = @host_id AND o.gone_at IS NULL);

-- name: InsertClusterEvent :exec
INSERT INTO cluster_event (cluster_id, at, kind, rank, title, detail, data)
VALUES (@cluster_id, @at, @kind, sqlc.narg(rank), @title, @detail, @data);

-- name: ListClusterEvents :many
SELECT n, at, kind, rank, title, detail, data FROM cluster_event
WHERE cluster_id = @cluster_id AND n > @after
ORDER BY n
LIMIT @max_rows;

-- name: SaveNodeLog :exec
INSERT INTO node_log (node_id, epoch, content, truncated) VALUES (@node_id, @epoch, @content, @truncated)
ON CONFLICT (node_id, epoch) DO NOTHING;

-- name: DropOldLogs :execrows
-- scan: done
DELETE FROM node_log
WHERE (node_id, epoch) IN (
    SELECT node_id, epoch FROM node_log WHERE created_at < statement_timestamp() - make_interval(days => @days::integer)
    ORDER BY created_at LIMIT @max_rows);

-- name: NodeLogs :many
SELECT l.epoch, l.content, l.truncated, l.created_at
FROM node_log l JOIN node n ON n.id = l.node_id
WHERE n.cluster_id = @cluster_id AND n.rank = @rank
ORDER BY l.epoch;

-- name: StoredLogs :many
-- The epochs of a host's leases whose logs are stored here.
SELECT l.id, g.epoch FROM lease l
JOIN node_log g ON g.node_id = l.node_id
WHERE l.host_id = @host_id AND l.id = ANY (@leases::uuid[]);

-- name: PostponeNodeLog :exec
-- A kept log that could not be fetched is fetched again later, behind the others.
INSERT INTO node_log_retry (node_id, epoch, next_at) VALUES (@node_id, @epoch, clock_timestamp() + interval '1 minute')
ON CONFLICT (node_id, epoch) DO UPDATE SET attempts = node_log_retry.attempts + 1,
    next_at = clock_timestamp() + interval '1 minute' * least(60, power(2, least(node_log_retry.attempts, 6)));

-- name: DropNodeLogRetry :exec
DELETE FROM node_log_retry WHERE node_id = @node_id AND epoch = @epoch;

-- name: KeptLogs :many
-- scan: moves next_at by PostponeNodeLog alone
-- Kept logs that wait on connected hosts, oldest report first, at most per_host of each host: one that answers slowly does
-- not crowd out the others. One that could not be fetched waits, and comes behind the others.
SELECT x.node_id, x.cluster_id, x.host_id, x.lease_id, x.rank, x.epoch
FROM (
SELECT w.*, f.next_at,
       row_number() OVER (PARTITION BY w.host_id ORDER BY f.next_at NULLS FIRST, w.reported_at, w.node_id, w.epoch) AS place
FROM (
    SELECT n.id AS node_id, n.cluster_id, n.host_id, n.lease_id, n.rank, k.epoch::integer AS epoch, s.reported_at
    FROM node_status s
    JOIN node n ON n.id = s.node_id
    CROSS JOIN LATERAL unnest(s.logs_kept) AS k (epoch)
    WHERE s.logs_kept <> '{}'
    UNION ALL
    SELECT r.node_id, r.cluster_id, r.lost_host, r.lost_lease, n.rank, k.epoch::integer, r.at
    FROM node_replacement r
    JOIN node n ON n.id = r.node_id
    CROSS JOIN LATERAL unnest(r.logs_kept) AS k (epoch)
    WHERE r.logs_kept <> '{}'
) w
JOIN host_status hs ON hs.host_id = w.host_id AND hs.connected
LEFT JOIN node_log_retry f ON f.node_id = w.node_id AND f.epoch = w.epoch
WHERE NOT EXISTS (SELECT FROM node_log g WHERE g.node_id = w.node_id AND g.epoch = w.epoch)
  AND (f.next_at IS NULL OR f.next_at <= statement_timestamp())
) x
WHERE x.place <= @per_host::bigint
ORDER BY x.next_at NULLS FIRST, x.place, x.reported_at
LIMIT @max_rows;

-- name: SealedClusters :many
-- scan: in order
-- Clusters with secrets, in the order of their ids, after the given one.
SELECT id, secrets FROM cluster WHERE (sqlc.narg(after)::uuid IS NULL OR id > sqlc.narg(after)::uuid) AND secrets IS NOT NULL AND secrets <> '' ORDER BY id LIMIT @max_rows;

-- name: ResealCluster :execrows
UPDATE cluster SET secrets = @fresh WHERE id = @id AND secrets = @sealed;

-- name: LiveLease :one
-- Where a node's log can be read live.
SELECT n.id AS node_id, n.host_id, n.lease_id, n.epoch, l.gone_at, (n.epoch = ANY (s.logs_kept))::boolean AS kept
FROM node n JOIN lease l ON l.id = n.lease_id JOIN node_status s ON s.node_id = n.id
WHERE n.cluster_id = @cluster_id AND n.rank = @rank;

-- name: OrgBurn :one
-- What an org's running clusters cost per hour, micro-units, by project, and the time at which they do.
SELECT clock_timestamp()::timestamptz AS now, coalesce(array_agg(b.project ORDER BY b.project), '{}')::text[] AS projects,
       coalesce(array_agg(b.rate ORDER BY b.project), '{}')::bigint[] AS rates
FROM (SELECT c.project, sum(c.rate)::bigint AS rate FROM cluster c
      WHERE c.org_id = @org_id AND c.ended_at IS NULL AND c.state IN ('running', 'degraded') GROUP BY c.project) b;

-- name: ReportClock :one
-- PostgreSQL's clock, the newest anchor of a host's boot (0 when it has none), and whether the host keeps logs for us.
SELECT clock_timestamp()::timestamptz AS now, coalesce(a.boot_ms, 0)::bigint AS boot_ms, coalesce(a.server_ms, 0)::bigint AS server_ms,
       (EXISTS (SELECT FROM node_status s JOIN node n ON n.id = s.node_id WHERE s.logs_kept <> '{}' AND n.host_id = @host_id)
        OR EXISTS (SELECT FROM node_replacement r WHERE r.lost_host = @host_id AND r.logs_kept <> '{}'))::boolean AS logs_wait
FROM (SELECT 1) one
LEFT JOIN LATERAL (
    SELECT t.boot_ms, t.server_ms FROM time_anchor t
    WHERE t.host_id = @host_id AND t.boot_id = @boot_id
    ORDER BY t.number DESC LIMIT 1
) a ON true;

-- name: HostRevision :one
SELECT h.revision, c.epoch AS control_epoch FROM host h CROSS JOIN control c WHERE h.id = @host_id;

-- name: HeldLeases :many
-- Which of these ended leases have claims, or uploads on a host that has been out of reach for less than a time.
SELECT ref FROM gpu_claim WHERE ref = ANY (@leases::uuid[]) AND ended_at IS NULL
UNION
SELECT l.id FROM lease l JOIN host h ON h.id = l.host_id JOIN host_status s ON s.host_id = l.host_id
WHERE l.id = ANY (@leases::uuid[]) AND l.gpus_free_at IS NOT NULL AND greatest(s.last_sync_at, h.created_at,
    (SELECT min(r.started_at) FROM replica r WHERE r.seen_at > clock_timestamp() - interval '1 minute'))
    >= clock_timestamp() - interval '1 millisecond' * @after_ms::bigint;

-- name: GPUsOfCluster :many
-- The GPUs a cluster has and had, with the time in which they were its own.
SELECT l.rank, l.host_id, h.name AS host_name, g.id, g.uuid, g.model, g.vram_mb, l.created_at AS had_from, l.ended_at AS had_until
FROM lease l
JOIN host h ON h.id = l.host_id
JOIN gpu g ON g.id = ANY (l.gpu_ids)
WHERE l.cluster_id = @cluster_id
ORDER BY l.rank, l.created_at, g.idx;

-- name: LeasesOfRanks :many
-- The leases a cluster has and had, with the time in which they were its own.
SELECT l.id, l.rank, l.host_id, h.name AS host_name, l.created_at AS had_from, l.ended_at AS had_until
FROM lease l
JOIN host h ON h.id = l.host_id
WHERE l.cluster_id = @cluster_id
ORDER BY l.rank, l.created_at;

-- name: ShellLease :one
-- Where a shell on a rank goes.
SELECT c.state, n.state AS node_state, n.host_id, n.lease_id, n.epoch
FROM cluster c JOIN node n ON n.cluster_id = c.id
WHERE c.id = @cluster_id AND n.rank = @rank;
