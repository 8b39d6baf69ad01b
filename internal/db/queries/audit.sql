-- name: InsertAuditEvent :exec
INSERT INTO audit_event (id, org_id, user_id, token_id, action, object, detail, address)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: ListAuditEvents :many
SELECT id, org_id, user_id, token_id, action, object, detail, address, created_at
FROM audit_event
WHERE org_id = @org_id AND (sqlc.narg(before)::uuid IS NULL OR id < sqlc.narg(before)::uuid)
ORDER BY id DESC
LIMIT @max_rows;

-- name: SearchAuditEvents :many
-- The whole platform's audit log, with the names of the actors. An org's: what it did, and what was done to it.
SELECT e.id, e.org_id, e.user_id, e.token_id, e.action, e.object, e.detail, e.address, e.created_at,
       coalesce(u.email, '')::text AS email, coalesce(o.name, '')::text AS org_name
FROM audit_event e LEFT JOIN app_user u ON u.id = e.user_id LEFT JOIN org o ON o.id = e.org_id
WHERE (sqlc.narg(before)::uuid IS NULL OR e.id < sqlc.narg(before)::uuid)
  AND (sqlc.narg(org)::uuid IS NULL OR e.org_id = sqlc.narg(org)::uuid OR e.object = @org_name_id::text
       OR e.detail->>'org' = @org_name_id::text OR e.detail->>'renter' = @org_name_id::text)
  AND (@action::text = '' OR e.action = @action::text OR starts_with(e.action, @action::text || '.'))
  AND (@words::text = '' OR e.object = @words::text OR starts_with(u.email, lower(@words::text)) OR strpos(lower(e.detail::text), lower(@words::text)) > 0)
ORDER BY e.id DESC
LIMIT @max_rows;

-- name: OrgAuditEvents :many
-- What an org itself did, with the e-mail addresses of its people.
SELECT e.id, e.org_id, e.user_id, e.token_id, e.action, e.object, e.detail, e.address, e.created_at, coalesce(u.email, '')::text AS email
FROM audit_event e LEFT JOIN app_user u ON u.id = e.user_id
WHERE e.org_id = @org_id AND (sqlc.narg(before)::uuid IS NULL OR e.id < sqlc.narg(before)::uuid)
  AND (@action::text = '' OR e.action = @action::text OR starts_with(e.action, @action::text || '.'))
  AND (@words::text = '' OR e.object = @words::text OR starts_with(u.email, lower(@words::text)) OR strpos(lower(e.detail::text), lower(@words::text)) > 0)
ORDER BY e.id DESC
LIMIT @max_rows;

-- name: AuditObjectNames :many
-- What people call objects of the audit log: clusters, hosts and SSH keys by name, organisations, sessions by their user and browser.
SELECT 'cl' AS kind, id::text AS id, name::text AS name, ''::text AS browser FROM cluster WHERE id = ANY (@clusters::uuid[])
UNION ALL
SELECT 'host', id::text, name, '' FROM host WHERE id = ANY (@hosts::uuid[])
UNION ALL
SELECT 'org', id::text, name, '' FROM org WHERE id = ANY (@orgs::uuid[])
UNION ALL
SELECT 'ses', s.id::text, u.email, s.user_agent FROM session s JOIN app_user u ON u.id = s.user_id WHERE s.id = ANY (@sessions::uuid[]);
