-- The identity of the database, and restores that were adopted.

-- name: ControlForUpdate :one
SELECT epoch, system_id, database_oid, timeline FROM control FOR UPDATE;

-- name: SetDatabaseIdentity :exec
UPDATE control SET system_id = @system_id::bigint, database_oid = @database_oid::bigint, timeline = @timeline::bigint;

-- name: RaiseControlEpoch :one
-- Above every epoch that any earlier restore of the same backup may have sent to hosts: it follows the clock.
UPDATE control SET epoch = greatest(epoch + 1, floor(extract(epoch FROM clock_timestamp()))::bigint) RETURNING epoch;

-- name: NewestKnown :one
-- scan: page
-- The newest moment of which the database knows anything.
SELECT greatest('epoch'::timestamptz, (SELECT to_timestamp(max(p.last_ms) / 1000.0) FROM pulse p),
    (SELECT x.created_at FROM ledger_tx x ORDER BY x.id DESC LIMIT 1), (SELECT e.created_at FROM audit_event e ORDER BY e.id DESC LIMIT 1),
    (SELECT t.created_at FROM topup t ORDER BY t.id DESC LIMIT 1))::timestamptz AS at;

-- name: InsertRestore :one
INSERT INTO restore (backup_at, epoch, hosts) VALUES (@backup_at, @epoch, @hosts)
RETURNING id, backup_at, adopted_at, epoch, hosts, finished_at;

-- name: LastRestore :one
-- scan: page
SELECT id, backup_at, adopted_at, epoch, hosts, finished_at FROM restore ORDER BY id DESC LIMIT 1;

-- name: FinishRestore :exec
UPDATE restore SET finished_at = clock_timestamp() WHERE id = @id;

-- name: PutRestoreFinding :exec
-- What was booked stays so; anything else may be found in another state later.
INSERT INTO restore_finding (restore_id, object, kind, outcome, org_id, amount, currency, note)
VALUES (@restore_id, @object, @kind, @outcome, @org_id, @amount, @currency, @note)
ON CONFLICT (restore_id, object) DO UPDATE SET outcome = excluded.outcome, org_id = excluded.org_id, note = excluded.note
WHERE restore_finding.outcome <> 'booked';

-- name: RestoreFindings :many
-- scan: page
SELECT object, kind, outcome, org_id, amount, currency, note FROM restore_finding WHERE restore_id = @restore_id
ORDER BY outcome, kind, object LIMIT @max_rows;
