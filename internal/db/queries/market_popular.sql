-- Images that hosts with nothing to do may fetch ahead of time.

-- name: RentedImages :many
-- scan: lookup
-- Of the last so many clusters that got as far as to pin their image, those of the last days, by orgs and rents.
SELECT image_ref, count(*)::integer AS rents, count(DISTINCT org_id)::integer AS orgs
FROM (SELECT image_ref, image_digest, org_id, created_at FROM cluster ORDER BY id DESC LIMIT @clusters::integer) c
WHERE image_digest <> '' AND created_at > statement_timestamp() - make_interval(secs => @within::float8)
GROUP BY image_ref
HAVING count(DISTINCT org_id) >= @orgs::integer
ORDER BY orgs DESC, rents DESC, image_ref
LIMIT 100;

-- name: PublicImages :many
-- Those of the refs that so many hosts have pulled without credentials.
SELECT ref FROM host_image WHERE ref = ANY (@refs::text[]) GROUP BY ref HAVING count(*) >= @hosts::bigint;
