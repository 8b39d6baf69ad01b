-- Public images that lie on hosts.

-- name: ForgetHostImages :exec
-- Removes what of hosts' images they no longer have: the lists are of what they have.
DELETE FROM host_image i
WHERE i.host_id = ANY(@hosts::uuid[]) AND (i.host_id, i.ref) NOT IN (SELECT unnest(@of_hosts::uuid[]), unnest(@refs::text[]));

-- name: PutHostImages :exec
INSERT INTO host_image (host_id, ref, digest)
SELECT unnest(@hosts::uuid[]), unnest(@refs::text[]), unnest(@digests::text[])
ON CONFLICT (host_id, ref) DO UPDATE SET digest = excluded.digest WHERE host_image.digest <> excluded.digest;

-- name: HostsWithImage :many
SELECT host_id FROM host_image WHERE ref = @ref;
