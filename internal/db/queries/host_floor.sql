-- name: VersionFloors :many
-- scan: a few rows.
SELECT component, branch, least, reason, noticed_on,
       coalesce(blocks_from <= clock_timestamp(), false)::boolean AS blocks,
       (blocks_from IS NOT NULL)::boolean AS will_block, coalesce(blocks_from, 'epoch')::timestamptz AS blocks_from
FROM version_floor ORDER BY component, branch;

-- name: PutVersionFloor :exec
INSERT INTO version_floor (component, branch, least, reason, noticed_on, blocks_from)
VALUES (@component, @branch, @least, @reason, @noticed_on, sqlc.narg(blocks_from)::timestamptz)
ON CONFLICT (component, branch) DO UPDATE
SET least = excluded.least, reason = excluded.reason, noticed_on = excluded.noticed_on, blocks_from = excluded.blocks_from;

-- name: DeleteVersionFloor :execrows
DELETE FROM version_floor WHERE component = @component AND branch = @branch;

-- name: JudgeInventoriesAgain :exec
-- scan: done
UPDATE host_inventory SET hash = NULL WHERE hash IS NOT NULL;
