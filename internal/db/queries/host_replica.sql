-- name: PutReplica :exec
INSERT INTO replica (id, name, stream_url, nats_route) VALUES (@id, @name, @stream_url, @nats_route)
ON CONFLICT (id) DO UPDATE SET seen_at = clock_timestamp(), stream_url = excluded.stream_url, nats_route = excluded.nats_route;

-- name: RemoveReplica :exec
DELETE FROM replica WHERE id = @id;

-- name: PruneReplicas :exec
DELETE FROM replica WHERE seen_at < statement_timestamp() - interval '10 minutes';

-- name: LiveReplicas :many
SELECT id, name, stream_url, nats_route FROM replica
WHERE seen_at > clock_timestamp() - interval '30 seconds'
ORDER BY id;

-- name: ControlEpoch :one
SELECT clock_timestamp()::timestamptz AS now, c.epoch AS control_epoch FROM control c;
