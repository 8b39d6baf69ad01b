-- Requests to reset GPUs, check them and put them back into service.

-- name: RequestRequalify :exec
INSERT INTO gpu_requalify (gpu_id, host_id) VALUES (@gpu_id, @host_id)
ON CONFLICT (gpu_id) DO UPDATE
SET host_id = excluded.host_id, number = gpu_requalify.number + 1, requested_at = clock_timestamp(), finished_at = NULL, failure = ''
WHERE gpu_requalify.finished_at IS NOT NULL;

-- name: FinishRequalify :execrows
UPDATE gpu_requalify r SET finished_at = clock_timestamp(), failure = @failure
FROM gpu g
WHERE r.gpu_id = g.id AND r.host_id = @host_id AND g.uuid = @uuid AND r.number = @number AND r.finished_at IS NULL;

-- name: WaitingRequalify :many
SELECT g.uuid, r.number FROM gpu_requalify r JOIN gpu g ON g.id = r.gpu_id
WHERE r.host_id = @host_id AND r.finished_at IS NULL AND g.removed_at IS NULL
ORDER BY r.requested_at, g.id;

-- name: RequalifiesOf :many
SELECT gpu_id, requested_at, finished_at, failure FROM gpu_requalify WHERE host_id = @host_id;
