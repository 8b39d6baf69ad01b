-- GPUs: what hosts have, how it is, and who uses it.

-- name: PutHostInventories :exec
INSERT INTO host_inventory (host_id, inventory, hash, gpus)
SELECT unnest(@hosts::uuid[]), unnest(@inventories::text[])::jsonb, unnest(@hashes::bytea[]), unnest(@gpus::integer[])
ON CONFLICT (host_id) DO UPDATE SET inventory = excluded.inventory, hash = excluded.hash, gpus = excluded.gpus;

-- name: TouchInventories :many
-- Notes that hosts reported the same inventories again, of which all GPUs are present and none is a challenger. It changes no row
-- of a host whose inventory differs, or that is retired. The answer is the others; only they are locked, in the order of locks.
WITH same AS (
    SELECT f.id FROM (SELECT unnest(@hosts::uuid[]) AS host_id, unnest(@hashes::bytea[]) AS hash) u
    JOIN host_inventory k ON k.host_id = u.host_id AND k.hash = u.hash
    JOIN host f ON f.id = u.host_id
    ORDER BY f.id FOR NO KEY UPDATE OF f
)
UPDATE host h SET inventory_at = clock_timestamp()
FROM same JOIN host_inventory i ON i.host_id = same.id
WHERE h.id = same.id AND h.state <> 'retired'
  AND i.gpus = (SELECT count(*) FROM gpu g WHERE g.host_id = h.id AND g.present AND g.removed_at IS NULL AND g.contest <> 'challenger')
RETURNING h.id;

-- name: SetHostInventories :exec
-- The runtimes of a host are a list with commas.
UPDATE host h
SET boot_id = u.boot_id, cpu_cores = u.cpu_cores, ram_mb = u.ram_mb, disk_gb = u.disk_gb, disk_limited = u.disk_limited,
    scratch_gb = u.scratch_gb, runtimes = string_to_array(u.runtimes, ','), driver = u.driver, cuda_max = u.cuda_max,
    multi_node = u.multi_node, blocked = u.blocked, rdma_gbps = u.rdma_gbps, rdma_rails = u.rdma_rails, rdma_link = u.rdma_link,
    rdma_isolation = u.rdma_isolation, rdma_nccl = u.rdma_nccl, inventory_at = clock_timestamp()
FROM (SELECT unnest(@hosts::uuid[]) AS id, unnest(@boot_ids::text[]) AS boot_id, unnest(@cpu_cores::integer[]) AS cpu_cores,
             unnest(@ram_mbs::bigint[]) AS ram_mb, unnest(@disk_gbs::bigint[]) AS disk_gb, unnest(@disk_limiteds::boolean[]) AS disk_limited,
             unnest(@scratch_gbs::bigint[]) AS scratch_gb, unnest(@runtimes::text[]) AS runtimes, unnest(@drivers::text[]) AS driver,
             unnest(@cuda_maxes::text[]) AS cuda_max, unnest(@multi_nodes::boolean[]) AS multi_node, unnest(@blockeds::text[]) AS blocked,
             unnest(@rdma_gbps::float8[]) AS rdma_gbps, unnest(@rdma_rails::integer[]) AS rdma_rails,
             unnest(@rdma_links::text[]) AS rdma_link, unnest(@rdma_isolations::text[]) AS rdma_isolation,
             unnest(@rdma_nccls::boolean[]) AS rdma_nccl) u
WHERE h.id = u.id;

-- name: ActiveGPUs :many
SELECT host_id, id, uuid, health, present, contest FROM gpu WHERE host_id = ANY(@hosts::uuid[]) AND removed_at IS NULL;

-- name: PutGPUs :exec
-- Adds GPUs of hosts, or stores what has changed of those that it has. Those keep their health and their contest.
INSERT INTO gpu AS g (host_id, id, uuid, idx, pci_bus, model, arch, vram_mb, compute_cap, pcie_gen, nvlink, nvlink_gbps, power_limit_w,
                      power_default_w, facts, health, health_reason, in_use, contest, vendor, kind, parent_id, attach_name, rocm_max, display, pcie_measured, hive, busbw_nvlink, busbw_nvlink_at)
SELECT unnest(@hosts::uuid[]), unnest(@ids::uuid[]), unnest(@uuids::text[]), unnest(@idxs::integer[]), unnest(@pci_buses::text[]), unnest(@models::text[]),
       unnest(@archs::text[]), unnest(@vram_mbs::bigint[]), unnest(@compute_caps::text[]), unnest(@pcie_gens::integer[]),
       unnest(@nvlinks::boolean[]), unnest(@nvlink_gbps::float8[]), nullif(unnest(@power_limits_w::integer[]), 0),
       nullif(unnest(@power_defaults_w::integer[]), 0), unnest(@facts::text[])::jsonb, unnest(@healths::text[]), unnest(@health_reasons::text[]),
       unnest(@in_uses::text[]), unnest(@contests::text[]), unnest(@vendors::text[]), unnest(@kinds::text[]),
       nullif(unnest(@parents::uuid[]), '00000000-0000-0000-0000-000000000000'), unnest(@attach_names::text[]), unnest(@rocm_maxes::text[]),
       unnest(@displays::boolean[]), unnest(@pcie_measureds::boolean[]), unnest(@hives::text[]),
       nullif(unnest(@busbw_nvlinks::float8[]), 0), nullif(unnest(@busbw_nvlink_ats::timestamptz[]), 'epoch')
ON CONFLICT (id) DO UPDATE
SET idx = excluded.idx, pci_bus = excluded.pci_bus, model = excluded.model, arch = excluded.arch, vram_mb = excluded.vram_mb, compute_cap = excluded.compute_cap, pcie_gen = excluded.pcie_gen, nvlink = excluded.nvlink, 
    nvlink_gbps = excluded.nvlink_gbps, power_limit_w = excluded.power_limit_w, power_default_w = excluded.power_default_w, facts = excluded.facts, in_use = excluded.in_use, vendor = excluded.vendor, kind = excluded.kind, parent_id = excluded.parent_id, attach_name = excluded.attach_name, rocm_max = excluded.rocm_max, display = excluded.display, pcie_measured = excluded.pcie_measured, hive = excluded.hive,
    busbw_nvlink = excluded.busbw_nvlink, busbw_nvlink_at = excluded.busbw_nvlink_at, present = true
WHERE NOT g.present
   OR (g.idx, g.pci_bus, g.model, g.arch, g.vram_mb, g.compute_cap, g.pcie_gen, g.nvlink, g.nvlink_gbps, g.power_limit_w, g.power_default_w, g.facts, g.in_use, g.vendor, g.kind, g.parent_id, g.attach_name, g.rocm_max, g.display, g.pcie_measured, g.hive, g.busbw_nvlink, g.busbw_nvlink_at)
   IS DISTINCT FROM (excluded.idx, excluded.pci_bus, excluded.model, excluded.arch, excluded.vram_mb, excluded.compute_cap, excluded.pcie_gen, excluded.nvlink, excluded.nvlink_gbps, excluded.power_limit_w, excluded.power_default_w, excluded.facts, excluded.in_use, excluded.vendor, excluded.kind, excluded.parent_id, excluded.attach_name, excluded.rocm_max, excluded.display, excluded.pcie_measured, excluded.hive, excluded.busbw_nvlink, excluded.busbw_nvlink_at);

-- name: VanishGPUs :exec
UPDATE gpu SET present = false WHERE id = ANY(@ids::uuid[]) AND removed_at IS NULL AND present;

-- name: SetGPUHealth :exec
UPDATE gpu SET health = @health, health_reason = @reason WHERE id = @id;

-- name: InsertGPUHealth :execrows
INSERT INTO gpu_health (gpu_id, seq, kind, xid, detail, state, at, vendor, code)
VALUES (@gpu_id, @seq, @kind, @xid, @detail, @state, @at, @vendor, @code)
ON CONFLICT (gpu_id, seq) DO NOTHING;

-- name: LatestGPUHealth :one
SELECT seq, state, kind, detail FROM gpu_health
WHERE gpu_id = @gpu_id AND kind NOT IN ('degraded', 'restored')
ORDER BY seq DESC LIMIT 1;

-- name: SetGPUDegraded :exec
-- Sets why the GPU is degraded, if it is, to what the latest event of that says. It is degraded since the first of the events that say so
-- without one between them that it was restored.
UPDATE gpu g
SET degraded = CASE WHEN l.kind = 'degraded' THEN l.detail ELSE '' END,
    degraded_since = CASE WHEN l.kind = 'degraded' THEN (
        SELECT min(e.at) FROM gpu_health e
        WHERE e.gpu_id = g.id AND e.kind = 'degraded'
          AND e.seq > coalesce((SELECT max(r.seq) FROM gpu_health r WHERE r.gpu_id = g.id AND r.kind = 'restored'), 0)) END
FROM (SELECT h.kind, h.detail FROM gpu_health h
      WHERE h.gpu_id = @gpu_id AND h.kind IN ('degraded', 'restored') ORDER BY h.seq DESC LIMIT 1) l
WHERE g.id = @gpu_id;

-- name: RaiseHealthSeq :one
UPDATE host_status SET health_seq = greatest(health_seq, @seq::bigint) WHERE host_id = @host_id
RETURNING health_seq;

-- name: ListGPUs :many
SELECT g.id, g.host_id, g.uuid, g.idx, g.model, g.arch, g.vram_mb, g.compute_cap, g.pcie_gen, g.nvlink, g.nvlink_gbps,
       g.vendor, g.kind, coalesce((SELECT p.uuid FROM gpu p WHERE p.id = g.parent_id), '')::text AS parent, g.attach_name, g.rocm_max,
       coalesce(g.power_limit_w, 0)::integer AS power_limit_w, coalesce(g.power_default_w, 0)::integer AS power_default_w,
       g.health, g.health_reason, g.degraded, g.degraded_since, g.in_use, g.present, g.facts,
       coalesce(g.busbw_nvlink, 0)::double precision AS busbw_nvlink, coalesce(g.busbw_nvlink_at, 'epoch')::timestamptz AS busbw_nvlink_at, coalesce(c.kind, '') AS claim, g.contest,
       (g.contest <> '' AND EXISTS (SELECT FROM gpu_award a WHERE a.uuid = g.uuid))::boolean AS contest_decided
FROM gpu g
LEFT JOIN gpu_claim c ON c.gpu_id = g.id AND c.ended_at IS NULL AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp())
WHERE g.host_id = ANY(@hosts::uuid[]) AND (g.removed_at IS NULL OR @removed::boolean)
ORDER BY g.host_id, g.idx, g.id;

-- name: ExpireClaimsOn :exec
WITH ending AS (
    SELECT c.id FROM gpu_claim c
    WHERE c.gpu_id = ANY(@gpus::uuid[]) AND c.ended_at IS NULL AND c.expires_at <= clock_timestamp()
    ORDER BY c.gpu_id
    FOR UPDATE
)
UPDATE gpu_claim c SET ended_at = clock_timestamp(), end_reason = 'expired'
FROM ending
WHERE c.id = ending.id;

-- name: ExpireClaims :execrows
-- scan: done
WITH ending AS (
    SELECT c.id FROM gpu_claim c
    WHERE c.ended_at IS NULL AND c.expires_at <= statement_timestamp()
    ORDER BY c.expires_at
    LIMIT @max_rows
    FOR UPDATE SKIP LOCKED
)
UPDATE gpu_claim c SET ended_at = clock_timestamp(), end_reason = 'expired'
FROM ending
WHERE c.id = ending.id;

-- name: InsertClaims :one
-- How many were free. Several refs at a time; a claim's place in the lists is the same in all of them.
WITH inserted AS (
    INSERT INTO gpu_claim (id, gpu_id, host_id, kind, ref, expires_at)
    SELECT n.id, g.id, g.host_id, @kind, n.ref, sqlc.narg(expires_at)::timestamptz
    FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@gpus::uuid[]) AS gpu_id, unnest(@hosts::uuid[]) AS host_id, unnest(@refs::uuid[]) AS ref) n
    JOIN gpu g ON g.id = n.gpu_id AND g.host_id = n.host_id AND g.present AND g.removed_at IS NULL AND g.health <> 'quarantined' AND g.in_use = ''
     AND (g.contest IN ('', 'incumbent') OR @kind NOT IN ('quote', 'lease'))
    ORDER BY g.id
    ON CONFLICT (gpu_id) WHERE ended_at IS NULL DO NOTHING
    RETURNING 1
)
SELECT count(*) FROM inserted;

-- name: ClaimForLeases :many
-- Claims GPUs that were found free under the locks of their hosts, and raises the hosts' revisions. If a GPU is not free,
-- this fails: with its unique index, or because a GPU that cannot be claimed has no id here.
WITH claimed AS (
    INSERT INTO gpu_claim (id, gpu_id, host_id, kind, ref)
    SELECT n.id, g.id, n.host_id, 'lease', n.ref
    FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@gpus::uuid[]) AS gpu_id, unnest(@hosts::uuid[]) AS host_id, unnest(@refs::uuid[]) AS ref) n
    LEFT JOIN gpu g ON g.id = n.gpu_id AND g.host_id = n.host_id AND g.present AND g.removed_at IS NULL AND g.health <> 'quarantined' AND g.in_use = ''
         AND g.contest IN ('', 'incumbent')
    ORDER BY n.gpu_id
)
UPDATE host SET revision = revision + 1 WHERE id = ANY(@hosts::uuid[])
RETURNING id, revision;

-- name: EndClaims :exec
WITH ending AS (
    SELECT c.id FROM gpu_claim c WHERE c.ref = @ref AND c.ended_at IS NULL ORDER BY c.gpu_id FOR UPDATE
)
UPDATE gpu_claim c SET ended_at = clock_timestamp(), end_reason = @reason
FROM ending
WHERE c.id = ending.id;

-- name: AbandonedLeases :many
-- A server that was down has received no reports meanwhile: hosts get their time from its start.
SELECT DISTINCT c.host_id, c.ref
FROM gpu_claim c
JOIN lease l ON l.id = c.ref AND l.ended_at IS NOT NULL
JOIN host h ON h.id = c.host_id
JOIN host_status s ON s.host_id = c.host_id
WHERE c.kind = 'lease' AND c.ended_at IS NULL
  AND coalesce(s.last_sync_at, h.created_at) < clock_timestamp() - interval '1 millisecond' * @after_ms::bigint
  AND coalesce((SELECT min(r.started_at) FROM replica r WHERE r.seen_at > clock_timestamp() - interval '1 minute'), '-infinity')
      < clock_timestamp() - interval '1 millisecond' * @after_ms::bigint
ORDER BY c.host_id, c.ref;

-- name: HostOutOfReach :one
SELECT coalesce(s.last_sync_at, h.created_at) < clock_timestamp() - interval '1 millisecond' * @after_ms::bigint AS out
FROM host h JOIN host_status s ON s.host_id = h.id
WHERE h.id = @id;

-- name: NeedFullReport :exec
UPDATE host SET needs_full_report = true WHERE id = @id;

-- name: DropOldClaims :execrows
-- Who had a GPU is in its leases.
-- scan: done
DELETE FROM gpu_claim WHERE id IN (
    SELECT c.id FROM gpu_claim c
    WHERE c.id < first_id(statement_timestamp() - interval '90 days') AND c.ended_at < statement_timestamp() - interval '90 days'
    ORDER BY c.id LIMIT @max_rows);

-- name: ClaimFabrics :exec
-- Fails with fabric_claim_sole if another organisation rents one of the fabrics and no partitions keep them apart.
INSERT INTO fabric_claim (ref, fabric_id, org_id, cluster_id)
SELECT unnest(@refs::uuid[]), unnest(@fabrics::uuid[]), unnest(@orgs::uuid[]), unnest(@clusters::uuid[])
ON CONFLICT (ref) DO NOTHING;
