-- Telemetry: one row of arrays per GPU and five minutes.

-- name: AppendTelemetry :batchexec
-- Adds samples, one element of the arrays each, to the rows of their GPUs and buckets.
INSERT INTO telemetry (gpu_id, bucket, at_ms, util, mem_mb, power_w, temp_c)
SELECT t.gpu_id, t.bucket, array_agg(t.at_ms ORDER BY t.at_ms), array_agg(t.util ORDER BY t.at_ms), array_agg(t.mem_mb ORDER BY t.at_ms),
       array_agg(t.power_w ORDER BY t.at_ms), array_agg(t.temp_c ORDER BY t.at_ms)
FROM (SELECT unnest(@gpus::uuid[]) AS gpu_id, unnest(@buckets::timestamptz[]) AS bucket, unnest(@at_ms::bigint[]) AS at_ms,
             unnest(@util::smallint[]) AS util, unnest(@mem_mb::integer[]) AS mem_mb, unnest(@power_w::integer[]) AS power_w,
             unnest(@temp_c::smallint[]) AS temp_c) t
GROUP BY t.gpu_id, t.bucket
ORDER BY t.gpu_id, t.bucket
ON CONFLICT (gpu_id, bucket) DO UPDATE
SET at_ms = telemetry.at_ms || excluded.at_ms, util = telemetry.util || excluded.util,
    mem_mb = telemetry.mem_mb || excluded.mem_mb, power_w = telemetry.power_w || excluded.power_w,
    temp_c = telemetry.temp_c || excluded.temp_c;

-- name: ReadTelemetry :many
SELECT gpu_id, bucket, at_ms, util, mem_mb, power_w, temp_c
FROM telemetry
WHERE gpu_id = ANY(@gpus::uuid[]) AND bucket > @from_bucket AND bucket < @before
ORDER BY gpu_id, bucket;
