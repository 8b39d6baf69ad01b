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

-- name: AppendNodeTelemetry :batchexec
-- Adds samples, one element of the arrays each, to the rows of their leases and buckets.
INSERT INTO node_telemetry (lease_id, bucket, at_ms, net_rx, net_tx, ranks_rx, ranks_tx, disk_read, disk_write, scratch)
SELECT t.lease_id, t.bucket, array_agg(t.at_ms ORDER BY t.at_ms), array_agg(t.net_rx ORDER BY t.at_ms), array_agg(t.net_tx ORDER BY t.at_ms),
       array_agg(t.ranks_rx ORDER BY t.at_ms), array_agg(t.ranks_tx ORDER BY t.at_ms), array_agg(t.disk_read ORDER BY t.at_ms),
       array_agg(t.disk_write ORDER BY t.at_ms), array_agg(t.scratch ORDER BY t.at_ms)
FROM (SELECT unnest(@leases::uuid[]) AS lease_id, unnest(@buckets::timestamptz[]) AS bucket, unnest(@at_ms::bigint[]) AS at_ms,
             unnest(@net_rx::bigint[]) AS net_rx, unnest(@net_tx::bigint[]) AS net_tx, unnest(@ranks_rx::bigint[]) AS ranks_rx,
             unnest(@ranks_tx::bigint[]) AS ranks_tx, unnest(@disk_read::bigint[]) AS disk_read,
             unnest(@disk_write::bigint[]) AS disk_write, unnest(@scratch::bigint[]) AS scratch) t
GROUP BY t.lease_id, t.bucket
ORDER BY t.lease_id, t.bucket
ON CONFLICT (lease_id, bucket) DO UPDATE
SET at_ms = node_telemetry.at_ms || excluded.at_ms, net_rx = node_telemetry.net_rx || excluded.net_rx,
    net_tx = node_telemetry.net_tx || excluded.net_tx, ranks_rx = node_telemetry.ranks_rx || excluded.ranks_rx,
    ranks_tx = node_telemetry.ranks_tx || excluded.ranks_tx, disk_read = node_telemetry.disk_read || excluded.disk_read,
    disk_write = node_telemetry.disk_write || excluded.disk_write, scratch = node_telemetry.scratch || excluded.scratch;

-- name: ReadNodeTelemetry :many
SELECT lease_id, bucket, at_ms, net_rx, net_tx, ranks_rx, ranks_tx, disk_read, disk_write, scratch
FROM node_telemetry
WHERE lease_id = ANY(@leases::uuid[]) AND bucket > @from_bucket AND bucket < @before
ORDER BY lease_id, bucket;

-- name: LeasesOnHost :many
-- The leases of which a host may send telemetry.
SELECT id FROM lease WHERE host_id = @host_id AND gone_at IS NULL;
