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
