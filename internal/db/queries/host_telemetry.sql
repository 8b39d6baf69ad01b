-- Telemetry: one row of arrays per GPU and five minutes.

-- name: AppendTelemetry :batchexec
INSERT INTO telemetry (gpu_id, bucket, at_ms, util, mem_mb, power_w, temp_c)
VALUES (@gpu_id, @bucket, @at_ms, @util, @mem_mb, @power_w, @temp_c)
ON CONFLICT (gpu_id, bucket) DO UPDATE
SET at_ms = telemetry.at_ms || excluded.at_ms, util = telemetry.util || excluded.util,
    mem_mb = telemetry.mem_mb || excluded.mem_mb, power_w = telemetry.power_w || excluded.power_w,
    temp_c = telemetry.temp_c || excluded.temp_c;

-- name: ReadTelemetry :many
SELECT gpu_id, bucket, at_ms, util, mem_mb, power_w, temp_c
FROM telemetry
WHERE gpu_id = ANY(@gpus::uuid[]) AND bucket > @from_bucket AND bucket < @before
ORDER BY gpu_id, bucket;
