-- name: VersionFloors :many
-- scan: a few rows.
SELECT component, branch, least, reason, noticed_on,
       coalesce(blocks_from <= clock_timestamp(), false)::boolean AS blocks,
       (blocks_from IS NOT NULL)::boolean AS will_block, coalesce(blocks_from, 'epoch')::timestamptz AS blocks_from
FROM version_floor ORDER BY component, branch;
