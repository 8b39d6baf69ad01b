-- name: LockSandbox :exec
-- Until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtext('sandbox_object'), 0);

-- name: SandboxChanges :many
SELECT kind, id, body, made, version FROM sandbox_object WHERE version > @seen ORDER BY version LIMIT @max_rows;

-- name: PutSandboxObjects :one
-- A body that is empty: the object is gone. Returns the highest version.
WITH put AS (
    INSERT INTO sandbox_object AS o (kind, id, body, made, version)
    SELECT n.kind, n.id, nullif(n.body, ''), n.version, n.version
    FROM (SELECT u.kind, u.id, u.body, nextval('sandbox_version') AS version
          FROM (SELECT unnest(@kinds::text[]) AS kind, unnest(@ids::text[]) AS id, unnest(@bodies::text[]) AS body) u) n
    ON CONFLICT (kind, id) DO UPDATE
    SET body = excluded.body, version = excluded.version, changed_at = clock_timestamp(),
        made = CASE WHEN o.body IS NULL THEN excluded.made ELSE o.made END
    RETURNING o.version
)
SELECT max(version)::bigint FROM put;

-- name: SweepSandbox :exec
-- A removed object is kept until every replica must have received the removal.
DELETE FROM sandbox_object WHERE body IS NULL AND changed_at < statement_timestamp() - interval '1 day';
