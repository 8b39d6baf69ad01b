-- How fast GPUs ran: one row of arrays per GPU and five minutes. An element holds from at_ms on, for for_ms.

-- name: AppendSpeed :batchexec
-- Adds elements, one of the arrays each, to the rows of their GPUs and buckets.
INSERT INTO telemetry_speed (gpu_id, bucket, at_ms, for_ms, sm_mhz, mem_mhz, limits, fan, pcie_replays, nvlink_errors, energy_j)
SELECT t.gpu_id, t.bucket, array_agg(t.at_ms ORDER BY t.at_ms), array_agg(t.for_ms ORDER BY t.at_ms),
       array_agg(t.sm_mhz ORDER BY t.at_ms), array_agg(t.mem_mhz ORDER BY t.at_ms), array_agg(t.limits ORDER BY t.at_ms),
       array_agg(t.fan ORDER BY t.at_ms), array_agg(t.pcie_replays ORDER BY t.at_ms),
       array_agg(t.nvlink_errors ORDER BY t.at_ms), array_agg(t.energy_j ORDER BY t.at_ms)
FROM (SELECT unnest(@gpus::uuid[]) AS gpu_id, unnest(@buckets::timestamptz[]) AS bucket, unnest(@at_ms::bigint[]) AS at_ms,
             unnest(@for_ms::integer[]) AS for_ms, unnest(@sm_mhz::integer[]) AS sm_mhz, unnest(@mem_mhz::integer[]) AS mem_mhz,
             unnest(@limits::integer[]) AS limits, unnest(@fan::smallint[]) AS fan, unnest(@pcie_replays::bigint[]) AS pcie_replays,
             unnest(@nvlink_errors::bigint[]) AS nvlink_errors, unnest(@energy_j::bigint[]) AS energy_j) t
GROUP BY t.gpu_id, t.bucket
ORDER BY t.gpu_id, t.bucket
ON CONFLICT (gpu_id, bucket) DO UPDATE
SET at_ms = telemetry_speed.at_ms || excluded.at_ms, for_ms = telemetry_speed.for_ms || excluded.for_ms,
    sm_mhz = telemetry_speed.sm_mhz || excluded.sm_mhz, mem_mhz = telemetry_speed.mem_mhz || excluded.mem_mhz,
    limits = telemetry_speed.limits || excluded.limits, fan = telemetry_speed.fan || excluded.fan,
    pcie_replays = telemetry_speed.pcie_replays || excluded.pcie_replays,
    nvlink_errors = telemetry_speed.nvlink_errors || excluded.nvlink_errors,
    energy_j = telemetry_speed.energy_j || excluded.energy_j;

-- name: ReadSpeed :many
SELECT gpu_id, bucket, at_ms, for_ms, sm_mhz, mem_mhz, limits, fan, pcie_replays, nvlink_errors, energy_j
FROM telemetry_speed
WHERE gpu_id = ANY(@gpus::uuid[]) AND bucket > @from_bucket AND bucket < @before
ORDER BY gpu_id, bucket;
