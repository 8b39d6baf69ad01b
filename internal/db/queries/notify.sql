-- name: InsertNotice :one
-- Writes a notice with its deliveries to the webhooks of the organisation.
WITH n AS (
    INSERT INTO notice (id, org_id, dedupe_key, severity, title, body, object, forecast)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (org_id, dedupe_key) DO NOTHING
    RETURNING id, org_id
), d AS (
    INSERT INTO webhook_delivery (webhook_id, notice_id)
    SELECT w.id, n.id FROM n JOIN webhook w ON w.org_id = n.org_id AND w.disabled_at IS NULL
)
SELECT count(*) FROM n;

-- name: DeleteForecasts :exec
DELETE FROM notice WHERE org_id = @org_id AND object = @object AND forecast;

-- name: ListNotices :many
SELECT id, org_id, dedupe_key, severity, title, body, object, mailed_at, read_at, created_at
FROM notice
WHERE org_id = @org_id AND (sqlc.narg(after)::uuid IS NULL OR id < sqlc.narg(after)::uuid)
  AND (NOT @unread_only::boolean OR read_at IS NULL)
ORDER BY id DESC LIMIT @max_rows;

-- name: MarkNoticeRead :execrows
UPDATE notice SET read_at = coalesce(read_at, clock_timestamp()) WHERE id = @id AND org_id = @org_id;

-- name: MarkNoticesRead :exec
-- Marks the notices as read that are not newer than the newest one that was shown.
UPDATE notice SET read_at = clock_timestamp() WHERE org_id = @org_id AND id <= @up_to AND read_at IS NULL;

-- name: DropOldNotices :execrows
-- scan: done
DELETE FROM notice WHERE id IN (
    SELECT n.id FROM notice n WHERE n.id < first_id(statement_timestamp() - interval '400 days') AND n.mailed_at IS NOT NULL
    ORDER BY n.id LIMIT @max_rows);
