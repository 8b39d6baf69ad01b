-- name: OrgZone :one
SELECT zone FROM org WHERE id = $1;

-- name: HostOwner :one
SELECT org_id FROM host WHERE id = $1;

-- name: HostNames :many
SELECT id, name FROM host WHERE id = ANY (@ids::uuid[]);

-- name: ClusterNames :many
SELECT id, name, project, labels FROM cluster WHERE id = ANY (@ids::uuid[]);
