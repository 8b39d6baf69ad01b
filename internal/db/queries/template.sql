-- Templates of organisations.

-- name: LockTemplatesOfOrg :exec
-- Serialises creation, so that the limit per organisation holds.
SELECT pg_advisory_xact_lock(7274003, hashtext(@org::text));

-- name: CountTemplates :one
SELECT count(*) FROM template WHERE org_id = @org_id;

-- name: InsertTemplate :many
-- No row: the name is used.
INSERT INTO template (org_id, name, title, description, spec, created_by)
VALUES (@org_id, @name, @title, @description, @spec, @created_by)
ON CONFLICT (org_id, name) DO NOTHING
RETURNING *;

-- name: Templates :many
-- The organisation's, by name, or the one of the given name.
SELECT * FROM template WHERE org_id = @org_id AND (@name::text = '' OR name = @name::text) ORDER BY name;

-- name: DeleteTemplate :execrows
DELETE FROM template WHERE org_id = @org_id AND name = @name;

-- name: EraseTemplatesOfOrg :exec
DELETE FROM template WHERE org_id = @org_id;
