-- name: GPUsOfCluster :many
-- The GPUs a cluster had, with the time in which they were its own.
SELECT l.rank, l.host_id, g.id, g.uuid, g.model, g.vram_mb, l.created_at AS had_from, l.ended_at AS had_until
FROM lease l
JOIN cluster c ON c.id = l.cluster_id
JOIN gpu g ON g.id = ANY(l.gpu_ids)
WHERE l.cluster_id = @cluster_id AND c.org_id = @org_id
ORDER BY l.rank, g.idx, l.created_at;
