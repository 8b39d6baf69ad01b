-- name: ClaimUnmailedNotices :many
-- scan: in order
-- Takes notices that have not been mailed, and returns which of them are worth a mail: what will go wrong, went wrong, or
-- runs out.
UPDATE notice n
SET mailed_at = clock_timestamp()
WHERE n.id IN (SELECT d.id FROM notice d WHERE d.mailed_at IS NULL ORDER BY d.created_at LIMIT $1 FOR UPDATE SKIP LOCKED)
RETURNING n.id, n.org_id, n.title, n.body, n.object, (n.severity <> 'info' OR n.dedupe_key LIKE 'runway:%')::boolean AS worth;

-- name: OwnersOfOrg :many
SELECT u.id, u.email FROM membership m JOIN app_user u ON u.id = m.user_id
WHERE m.org_id = $1 AND m.role = 'owner' ORDER BY u.id;

-- name: InsertMail :exec
INSERT INTO mail (id, user_id, address, subject, body) VALUES ($1, $2, $3, $4, $5);

-- name: ClaimMail :many
-- scan: moves next_at
-- Takes mail that is due for as long as one attempt may last.
UPDATE mail m
SET attempts = m.attempts + 1, next_at = clock_timestamp() + interval '5 minutes'
WHERE m.id IN (SELECT d.id FROM mail d WHERE d.sent_at IS NULL AND d.failed_at IS NULL AND d.next_at <= statement_timestamp()
               ORDER BY d.next_at LIMIT $1 FOR UPDATE SKIP LOCKED)
RETURNING m.id, m.address, m.subject, m.body, m.attempts, m.created_at, (m.created_at < statement_timestamp() - interval '1 day')::boolean AS old;

-- name: MailSent :exec
UPDATE mail SET sent_at = clock_timestamp(), error = '' WHERE id = $1;

-- name: MailLater :exec
UPDATE mail SET error = @error, next_at = clock_timestamp() + make_interval(secs => @wait_s::float8) WHERE id = @id;

-- name: MailFailed :exec
UPDATE mail SET failed_at = clock_timestamp(), error = $2 WHERE id = $1;

-- name: DeleteOldMail :execrows
DELETE FROM mail WHERE created_at < statement_timestamp() - interval '30 days' AND (sent_at IS NOT NULL OR failed_at IS NOT NULL);
