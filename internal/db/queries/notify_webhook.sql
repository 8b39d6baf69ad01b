-- name: LockWebhooks :one
-- Counts the webhooks of an organisation. Those who add one at the same time wait for each other.
SELECT count(w.id) FROM (SELECT o.id FROM org o WHERE o.id = @org_id FOR NO KEY UPDATE) o
LEFT JOIN webhook w ON w.org_id = o.id;

-- name: InsertWebhook :one
INSERT INTO webhook (id, org_id, url, secret, created_by) VALUES ($1, $2, $3, $4, $5) RETURNING created_at;

-- name: ListWebhooks :many
SELECT id, url, created_at, disabled_at, disabled_why FROM webhook WHERE org_id = @org_id ORDER BY id DESC;

-- name: GetWebhook :one
SELECT id, url, created_at, disabled_at, disabled_why FROM webhook WHERE id = @id AND org_id = @org_id;

-- name: DeleteWebhook :execrows
DELETE FROM webhook WHERE id = @id AND org_id = @org_id;

-- name: EnableWebhook :execrows
UPDATE webhook SET disabled_at = NULL, disabled_why = '' WHERE id = @id AND org_id = @org_id;

-- name: DisableWebhook :one
-- Disables a webhook that has failed for too long.
UPDATE webhook SET disabled_at = clock_timestamp(), disabled_why = @why WHERE id = @id AND disabled_at IS NULL
RETURNING org_id, url;

-- name: GiveUpDeliveries :exec
-- Gives up what a disabled webhook has not received.
UPDATE webhook_delivery SET failed_at = clock_timestamp(), error = CASE WHEN error = '' THEN 'the webhook was disabled' ELSE error END
WHERE webhook_id = @webhook_id AND delivered_at IS NULL AND failed_at IS NULL;

-- name: ListDeliveries :many
SELECT d.notice_id, d.attempts, d.next_at, d.delivered_at, d.failed_at, d.status, d.error, d.created_at, n.title
FROM webhook_delivery d JOIN notice n ON n.id = d.notice_id
WHERE d.webhook_id = @webhook_id AND (sqlc.narg(after)::uuid IS NULL OR d.notice_id < sqlc.narg(after)::uuid)
ORDER BY d.notice_id DESC LIMIT @max_rows;

-- name: RetryDelivery :execrows
-- Makes a delivery due again, whatever became of it.
UPDATE webhook_delivery SET next_at = clock_timestamp(), delivered_at = NULL, failed_at = NULL, attempts = 0, created_at = clock_timestamp()
WHERE webhook_id = @webhook_id AND notice_id = @notice_id;

-- name: ClaimDeliveries :many
-- scan: moves next_at
-- Takes deliveries that are due for as long as one pass may last.
UPDATE webhook_delivery d SET next_at = clock_timestamp() + interval '5 minutes'
FROM (SELECT p.webhook_id, p.notice_id FROM webhook_delivery p
      WHERE p.delivered_at IS NULL AND p.failed_at IS NULL AND p.next_at <= statement_timestamp()
      ORDER BY p.next_at LIMIT @max_rows FOR UPDATE SKIP LOCKED) due,
     webhook w, notice n
WHERE d.webhook_id = due.webhook_id AND d.notice_id = due.notice_id AND w.id = d.webhook_id AND n.id = d.notice_id
RETURNING d.webhook_id, d.notice_id, d.attempts, w.url, w.secret, n.org_id, n.severity, n.title, n.body, n.object, n.created_at,
    (d.created_at < statement_timestamp() - interval '3 days')::boolean AS old;

-- name: DeliverySucceeded :exec
UPDATE webhook_delivery SET delivered_at = clock_timestamp(), attempts = attempts + 1, status = @status, error = ''
WHERE webhook_id = @webhook_id AND notice_id = @notice_id;

-- name: DeliveryFailed :exec
-- Records an attempt that failed. The next one is due after wait_s.
UPDATE webhook_delivery SET attempts = attempts + 1, status = @status, error = @error,
    next_at = clock_timestamp() + make_interval(secs => @wait_s::float8)
WHERE webhook_id = @webhook_id AND notice_id = @notice_id;

-- name: PostponeDelivery :exec
-- Waits with a delivery that was not tried, because its webhook has just failed.
UPDATE webhook_delivery SET next_at = clock_timestamp() + make_interval(secs => @wait_s::float8)
WHERE webhook_id = @webhook_id AND notice_id = @notice_id;

-- name: DropOldDeliveries :execrows
-- scan: done
-- Deletes deliveries that were made or given up a month ago.
DELETE FROM webhook_delivery WHERE (webhook_id, notice_id) IN (
    SELECT d.webhook_id, d.notice_id FROM webhook_delivery d
    WHERE d.created_at < statement_timestamp() - interval '30 days' AND (d.delivered_at IS NOT NULL OR d.failed_at IS NOT NULL)
    ORDER BY d.created_at LIMIT @max_rows);

-- name: ResealableWebhooks :many
-- scan: in order
SELECT id, secret FROM webhook WHERE id > @after ORDER BY id LIMIT @max_rows;

-- name: ResealWebhook :execrows
UPDATE webhook SET secret = @fresh WHERE id = @id AND secret = @stale;

-- name: EraseWebhooksOfOrg :exec
DELETE FROM webhook WHERE org_id = $1;
