-- The view of the fleet that replicas keep in memory. See migrations/00010_fleet_change.sql.

-- name: FleetMark :one
-- Every transaction below xmin has ended and is seen by this one, if it committed.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS xmin, clock_timestamp()::timestamptz AS at;

-- name: ChangedHosts :many
SELECT DISTINCT host_id FROM fleet_change WHERE xid >= (@since::text)::xid8;

-- name: PruneFleetChanges :execrows
DELETE FROM fleet_change WHERE changed_at < statement_timestamp() - interval '1 second' * @older_s::bigint;

-- name: ReachableHosts :many
SELECT host_id FROM host_status
WHERE connected AND last_sync_at > clock_timestamp() - interval '1 millisecond' * @within_ms::bigint;

-- name: FleetHosts :many
SELECT h.id, h.org_id, h.name, h.region, h.fabric_id, coalesce(f.name, '') AS fabric_name, f.busbw_gbps, h.simulated,
       h.multi_node, h.cpu_cores, h.ram_mb, h.disk_gb, h.disk_limited, h.scratch_gb, h.runtimes, h.driver, h.cuda_max, s.net_up_mbps, s.net_down_mbps,
       h.rdma_gbps, h.rdma_rails, h.rdma_link, r.busbw_gbps AS rdma_busbw_gbps, r.busbw_at AS rdma_busbw_at,
       (CASE WHEN h.rdma_gbps > 0 AND h.fabric_id IS NOT NULL AND fabric_partitioned(h.fabric_id) THEN 'partition' ELSE 'sole_tenant' END)::text AS rdma_isolation,
       ('entrypoint' = ANY(coalesce(a.capabilities, '{}')))::boolean AS entrypoint,
       ('user' = ANY(coalesce(a.capabilities, '{}')))::boolean AS users,
       ('volumes' = ANY(coalesce(a.capabilities, '{}')))::boolean AS volumes,
       ('volume_ranks' = ANY(coalesce(a.capabilities, '{}')))::boolean AS volume_ranks,
       ('buckets' = ANY(coalesce(a.capabilities, '{}')))::boolean AS buckets,
       ('volume_lazy' = ANY(coalesce(a.capabilities, '{}')))::boolean AS lazy_volumes,
       ARRAY(SELECT x.name FROM shared_host x JOIN shared_fs sf ON sf.name = x.name AND sf.org_id = h.org_id AND sf.marker = x.marker
             WHERE x.host_id = h.id AND x.problem = '' AND x.marker <> '' ORDER BY x.name)::text[] AS shared,
       CASE WHEN @topology::boolean THEN coalesce((i.inventory -> 'topology')::text, '') ELSE '' END::text AS topology
FROM host h
JOIN host_status s ON s.host_id = h.id
LEFT JOIN fabric f ON f.id = h.fabric_id
LEFT JOIN host_inventory i ON i.host_id = h.id
LEFT JOIN host_agent a ON a.host_id = h.id
LEFT JOIN host_rdma r ON r.host_id = h.id
WHERE h.id = ANY(@hosts::uuid[])
  AND h.state = 'active' AND h.blocked = '' AND NOT h.needs_full_report
  AND (h.capped_until IS NULL OR h.capped_until <= clock_timestamp())
  AND s.connected AND s.last_sync_at > clock_timestamp() - interval '1 millisecond' * @within_ms::bigint
  AND s.protocol >= @protocol::integer AND (NOT h.simulated OR @simulated::boolean);

-- name: FleetGPUs :many
SELECT g.host_id, g.id, g.uuid, g.idx, g.model, g.arch, g.vram_mb, g.compute_cap, g.pcie_gen, g.nvlink, g.nvlink_gbps,
       g.vendor, g.kind, g.parent_id, g.rocm_max, g.hive,
       coalesce(g.power_limit_w, 0)::integer AS power_limit_w, coalesce(g.power_default_w, 0)::integer AS power_default_w,
       g.degraded, g.degraded_since, g.display, g.pcie_measured, g.busbw_nvlink,
       (g.health = 'healthy' AND g.in_use = '' AND g.contest IN ('', 'incumbent') AND (c.id IS NULL OR coalesce(c.expires_at <= clock_timestamp(), false))
        AND (g.parent_id IS NULL OR NOT EXISTS (
            SELECT FROM gpu_claim w WHERE w.gpu_id = g.parent_id AND w.ended_at IS NULL
              AND (w.expires_at IS NULL OR w.expires_at > clock_timestamp()))))::boolean AS free,
       c.expires_at
FROM gpu g
LEFT JOIN gpu_claim c ON c.gpu_id = g.id AND c.ended_at IS NULL
WHERE g.host_id = ANY(@hosts::uuid[]) AND g.present AND g.removed_at IS NULL
ORDER BY g.host_id, g.idx, g.id;

-- name: FleetOffers :many
SELECT id, host_id, gpu_model, price, min_gpus, max_duration_s, host_share_ppm
FROM offer
WHERE host_id = ANY(@hosts::uuid[]) AND price IS NOT NULL
ORDER BY host_id, gpu_model;

-- name: FleetLeases :many
-- What leases keep of their hosts, until their claims end, and what uploads keep after that. (OFFSET 0: a lookup per claim, whatever
-- PostgreSQL guesses how many there are.)
SELECT t.host_id, sum(t.cpu_cores)::double precision AS cpu_cores, sum(t.ram_mb)::bigint AS ram_mb, sum(t.disk_gb)::bigint AS disk_gb,
       sum(t.scratch_gb)::bigint AS scratch_gb
FROM (SELECT c.host_id, l.cpu_cores, l.ram_mb, l.disk_gb, l.scratch_gb
      FROM (SELECT DISTINCT host_id, ref FROM gpu_claim WHERE host_id = ANY(@hosts::uuid[]) AND ended_at IS NULL AND kind = 'lease') c
      CROSS JOIN LATERAL (SELECT cpu_cores, ram_mb, disk_gb, scratch_gb FROM lease WHERE id = c.ref OFFSET 0) l
      UNION ALL
      SELECT u.host_id, 0, 0, 0, u.flush_gb FROM lease u
      WHERE u.host_id = ANY(@hosts::uuid[]) AND u.gone_at IS NULL AND u.gpus_free_at IS NOT NULL) t
GROUP BY t.host_id;

-- name: FleetQuotes :many
-- What live quotes keep of their hosts.
SELECT DISTINCT q.id, q.placement
FROM gpu_claim c
JOIN quote q ON q.id = c.ref
WHERE c.host_id = ANY(@hosts::uuid[]) AND c.ended_at IS NULL AND c.kind = 'quote' AND c.expires_at > clock_timestamp();

-- name: FabricTenants :many
-- For which organisations fabrics are claimed, where that excludes others. (The claims of an organisation on a fabric make one row.)
SELECT DISTINCT f.fabric_id, f.org_id
FROM fabric_claim f JOIN gpu_claim c ON c.ref = f.ref AND c.ended_at IS NULL
WHERE (c.expires_at IS NULL OR c.expires_at > clock_timestamp()) AND NOT (f.partitioned AND fabric_partitioned(f.fabric_id));

-- name: MarketModels :many
-- GPUs by model on active hosts of operators that have earned something.
SELECT g.model, count(*) AS gpus
FROM gpu g JOIN host h ON h.id = g.host_id
WHERE g.present AND g.removed_at IS NULL AND h.state = 'active'
  AND EXISTS (SELECT FROM operator_earning e WHERE e.host_org_id = h.org_id AND e.currency = @currency AND e.earned > 0)
GROUP BY g.model;
