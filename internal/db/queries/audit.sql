-- name: InsertAuditEvent :exec
INSERT INTO audit_event (id, org_id, user_id, token_id, action, object, detail, address)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: ListAuditEvents :many
SELECT id, org_id, user_id, token_id, action, object, detail, address, created_at
FROM audit_event
WHERE org_id = @org_id AND (sqlc.narg(before)::uuid IS NULL OR id < sqlc.narg(before)::uuid)
ORDER BY id DESC
LIMIT @max_rows;
