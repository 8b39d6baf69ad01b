-- name: InsertSSHHostKey :exec
-- The first replica's key stands.
INSERT INTO ssh_host_key (algorithm, sealed) VALUES (@algorithm, @sealed) ON CONFLICT (algorithm) DO NOTHING;

-- name: SSHHostKeys :many
SELECT algorithm, sealed FROM ssh_host_key ORDER BY algorithm;
