-- The circles of organisations, for which quotas count. The links are written by triggers on membership and payment_card.

-- name: LockCircle :exec
-- Until the end of the transaction: what the orgs of a circle hold or take for nothing is counted one after the other.
SELECT pg_advisory_xact_lock(7274001, hashtext(min(c.id::text)))
FROM (SELECT org_circle(@org_id, statement_timestamp() - interval '7 days') AS id) c;

-- name: DropEndedLinks :execrows
-- scan: done
DELETE FROM circle_link WHERE (org_id, via) IN (
    SELECT l.org_id, l.via FROM circle_link l WHERE l.ended_at < statement_timestamp() - interval '31 days' LIMIT 5000);
