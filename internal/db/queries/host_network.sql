-- name: MeasuredNet :exec
-- The better of what was measured lately and now.
UPDATE host_status SET
    net_up_mbps   = CASE WHEN net_up_mbps >= @up_mbps AND net_up_at > @since THEN net_up_mbps ELSE @up_mbps END,
    net_up_at     = CASE WHEN net_up_mbps >= @up_mbps AND net_up_at > @since THEN net_up_at ELSE @measured_at END,
    net_down_mbps = CASE WHEN net_down_mbps >= @down_mbps AND net_down_at > @since THEN net_down_mbps ELSE @down_mbps END,
    net_down_at   = CASE WHEN net_down_mbps >= @down_mbps AND net_down_at > @since THEN net_down_at ELSE @measured_at END
WHERE host_id = @host_id;

-- name: MeasuredFabric :exec
-- The bus bandwidth of a gang, when all its hosts are in one fabric.
UPDATE fabric SET busbw_gbps = @busbw_gbps, busbw_at = @measured_at
WHERE id = (SELECT min(h.fabric_id::text)::uuid FROM host h WHERE h.id = ANY (@hosts::uuid[])
            HAVING count(DISTINCT h.fabric_id) = 1 AND count(*) = count(h.fabric_id))
  AND (busbw_at IS NULL OR busbw_gbps < @busbw_gbps OR busbw_at <= @since);

-- name: OfferedNetwork :many
-- The network figures in the offers of hosts.
SELECT h.id, h.fabric_id, f.busbw_gbps, s.net_up_mbps, s.net_down_mbps
FROM host h JOIN host_status s ON s.host_id = h.id LEFT JOIN fabric f ON f.id = h.fabric_id
WHERE h.id = ANY (@hosts::uuid[]);

-- name: MeasuredRDMA :exec
-- The better of what was measured lately and now.
INSERT INTO host_rdma AS r (host_id, busbw_gbps, busbw_at, busbw_hosts, local_gbps, nccl, last_cluster_id, last_hosts, last_at)
VALUES (@host_id, @busbw_gbps, @measured_at, @hosts, @local_gbps, @nccl, @cluster_id, @hosts, @measured_at)
ON CONFLICT (host_id) DO UPDATE SET
    busbw_gbps  = CASE WHEN r.busbw_gbps >= excluded.busbw_gbps AND r.busbw_at > @since THEN r.busbw_gbps ELSE excluded.busbw_gbps END,
    busbw_at    = CASE WHEN r.busbw_gbps >= excluded.busbw_gbps AND r.busbw_at > @since THEN r.busbw_at ELSE excluded.busbw_at END,
    busbw_hosts = CASE WHEN r.busbw_gbps >= excluded.busbw_gbps AND r.busbw_at > @since THEN r.busbw_hosts ELSE excluded.busbw_hosts END,
    local_gbps  = excluded.local_gbps, nccl = excluded.nccl,
    last_cluster_id = excluded.last_cluster_id, last_hosts = excluded.last_hosts, last_at = excluded.last_at;

-- name: HostRDMA :many
-- What was measured of a host, until it is too old to say anything.
SELECT busbw_gbps, busbw_at, busbw_hosts, local_gbps, nccl FROM host_rdma WHERE host_id = @host_id AND busbw_at > @since;
