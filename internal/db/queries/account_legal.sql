-- name: OrgLegal :one
SELECT name, address, country, vat_id, changed_at FROM org_legal WHERE org_id = $1;

-- name: SetOrgLegal :one
INSERT INTO org_legal (org_id, name, address, country, vat_id) VALUES (@org_id, @name, @address, @country, @vat_id)
ON CONFLICT (org_id) DO UPDATE SET name = excluded.name, address = excluded.address, country = excluded.country,
    vat_id = excluded.vat_id, changed_at = clock_timestamp()
RETURNING changed_at;

-- name: EraseOrgLegal :execrows
DELETE FROM org_legal WHERE org_id = $1;

-- name: OrgName :one
SELECT name FROM org WHERE id = $1;

-- name: OrgZone :one
SELECT zone FROM org WHERE id = $1;

-- name: SetOrgZone :execrows
UPDATE org SET zone = @zone WHERE id = @id AND zone <> @zone;
