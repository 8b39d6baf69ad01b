-- Public images that lie on hosts.

-- name: ForgetHostImages :exec
DELETE FROM host_image WHERE host_id = @host_id AND ref <> ALL (@refs::text[]);

-- name: PutHostImages :exec
INSERT INTO host_image (host_id, ref, digest)
SELECT @host_id, unnest(@refs::text[]), unnest(@digests::text[])
ON CONFLICT (host_id, ref) DO UPDATE SET digest = excluded.digest WHERE host_image.digest <> excluded.digest;

-- name: HostsWithImage :many
SELECT host_id FROM host_image WHERE ref = @ref;
