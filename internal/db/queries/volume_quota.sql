-- What an organisation stores, reads and has paid, for its limits.

-- name: StorageStanding :one
-- scan: lookup
-- Of an organisation and its circle: what those of them store and read that have paid nothing is added up. Bytes that nothing needs any more count until the store has deleted them.
WITH linked AS (
    SELECT org_circle(@org_id::uuid, statement_timestamp() - interval '30 days') AS id
), payer AS (
    SELECT l.id,
           (SELECT coalesce(sum(greatest(0, t.amount - coalesce(r.amount, 0))), 0) FROM topup t
               LEFT JOIN LATERAL (SELECT sum(f.amount) AS amount FROM refund f WHERE f.topup_id = t.id AND f.state <> 'failed') r ON true
               WHERE t.org_id = l.id AND t.state = 'succeeded' AND t.currency = @currency AND t.payment_intent_id IS NOT NULL
                 AND NOT EXISTS (SELECT FROM dispute d WHERE d.topup_id = t.id))::bigint AS paid,
           EXISTS (SELECT FROM postpaid_org p WHERE p.org_id = l.id AND p.state = 'on' AND p.stopped = '') AS postpaid,
           (SELECT coalesce(sum(greatest(d.packs * @least_pack::bigint, d.bytes + d.granted + coalesce(g.bytes, 0))), 0) FROM data_domain d
               LEFT JOIN LATERAL (SELECT sum(p.bytes) AS bytes FROM data_pack p
                   WHERE p.domain_id = d.id AND p.state IN ('doomed', 'deleting')) g ON true
               WHERE d.org_id = l.id AND d.emptied_at IS NULL)::bigint AS stored,
           (SELECT coalesce(sum(s.bytes), 0) FROM data_served s
               WHERE s.org_id = l.id AND s.day = (clock_timestamp() AT TIME ZONE 'UTC')::date)::bigint AS read
    FROM linked l
)
SELECT o.paid, o.postpaid, o.stored, o.read,
       (SELECT coalesce(sum(f.stored), 0) FROM payer f WHERE f.paid = 0 AND NOT f.postpaid)::bigint AS free_stored,
       (SELECT coalesce(sum(f.read), 0) FROM payer f WHERE f.paid = 0 AND NOT f.postpaid)::bigint AS free_read,
       EXISTS (SELECT FROM payment_card k WHERE k.org_id = o.id AND k.removed_at IS NULL) AS card,
       (EXISTS (SELECT FROM membership m WHERE m.org_id = o.id AND m.role = 'owner')
           AND NOT EXISTS (SELECT FROM membership m JOIN app_user u ON u.id = m.user_id
               WHERE m.org_id = o.id AND m.role = 'owner' AND u.email_verified_at IS NOT NULL))::boolean AS unverified,
       u.unpaid_since, clock_timestamp()::timestamptz AS now,
       (SELECT coalesce(sum(s.bytes + s.host_bytes), 0) FROM data_served s
           WHERE s.org_id = o.id AND s.day >= (u.unpaid_since AT TIME ZONE 'UTC')::date + 3)::bigint AS read_unpaid
FROM payer o
LEFT JOIN LATERAL (SELECT m.unpaid_since FROM data_meter m JOIN data_domain d ON d.id = m.domain_id
    WHERE d.org_id = @org_id::uuid AND m.unpaid_since IS NOT NULL ORDER BY m.unpaid_since LIMIT 1) u ON true
WHERE o.id = @org_id::uuid;

-- name: LockStored :exec
-- Until the end of the transaction: what the organisations of a circle store is granted one after the other.
SELECT pg_advisory_xact_lock(7274040, hashtext(min(c.id::text)))
FROM (SELECT org_circle(@org_id::uuid, statement_timestamp() - interval '30 days') AS id) c;

-- name: AddServed :exec
INSERT INTO data_served (org_id, day, bytes, host_bytes)
VALUES (@org_id, (clock_timestamp() AT TIME ZONE 'UTC')::date, @bytes, @host_bytes)
ON CONFLICT (org_id, day) DO UPDATE SET bytes = data_served.bytes + excluded.bytes, host_bytes = data_served.host_bytes + excluded.host_bytes;

-- name: OrgOfDomain :one
SELECT org_id FROM data_domain WHERE id = @id;
