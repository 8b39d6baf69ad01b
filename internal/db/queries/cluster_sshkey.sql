-- name: InsertSSHHostKey :exec
-- The first replica's key stands.
INSERT INTO ssh_host_key (algorithm, sealed) VALUES (@algorithm, @sealed) ON CONFLICT (algorithm) DO NOTHING;

-- name: SSHHostKeys :many
SELECT algorithm, sealed FROM ssh_host_key ORDER BY algorithm;

-- name: ResealSSHHostKey :execrows
UPDATE ssh_host_key SET sealed = @fresh WHERE algorithm = @algorithm AND sealed = @sealed;
