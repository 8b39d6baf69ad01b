-- name: AutoTopup :one
SELECT org_id, user_id, enabled, threshold, amount, daily_cap, stopped, changed_at FROM auto_topup WHERE org_id = $1;

-- name: SetAutoTopup :exec
INSERT INTO auto_topup (org_id, user_id, enabled, threshold, amount, daily_cap) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (org_id) DO UPDATE SET user_id = excluded.user_id, enabled = excluded.enabled, threshold = excluded.threshold,
    amount = excluded.amount, daily_cap = excluded.daily_cap, stopped = '', changed_at = clock_timestamp(), next_at = clock_timestamp();

-- name: StopAutoTopup :execrows
UPDATE auto_topup SET enabled = false, stopped = @why, changed_at = clock_timestamp() WHERE org_id = @org_id AND enabled;

-- name: ClaimAutoTopups :many
-- scan: moves next_at
-- Takes orgs that have less available than they want, and no automatic payment under way. Orgs that pay afterwards add no
-- credit. The process that claims an org sets when it is checked next.
UPDATE auto_topup u
SET next_at = clock_timestamp() + interval '1 minute'
WHERE u.org_id IN (
    SELECT a.org_id
    FROM auto_topup a
    LEFT JOIN ledger_account l ON l.kind = 'renter_wallet' AND l.owner = a.org_id AND l.currency = @currency
    LEFT JOIN ledger_balance b ON b.account_id = l.id
    WHERE a.enabled AND a.next_at <= statement_timestamp() AND coalesce(b.amount, 0) < a.threshold
      AND NOT EXISTS (SELECT FROM postpaid_org p WHERE p.org_id = a.org_id AND p.state = 'on')
      AND NOT EXISTS (SELECT FROM topup t WHERE t.org_id = a.org_id AND t.automatic AND t.state = 'pending')
    ORDER BY a.next_at, a.org_id
    LIMIT @max_rows
    FOR UPDATE OF a SKIP LOCKED)
RETURNING u.org_id;

-- name: SetAutoTopupNext :exec
UPDATE auto_topup SET next_at = clock_timestamp() + make_interval(secs => @wait_s::float8) WHERE org_id = @org_id;

-- name: AutoTopupForUpdate :one
SELECT a.org_id, a.user_id, a.enabled, a.threshold, a.amount, a.daily_cap, u.email, o.name AS org_name
FROM auto_topup a
JOIN app_user u ON u.id = a.user_id
JOIN org o ON o.id = a.org_id
WHERE a.org_id = @org_id
FOR UPDATE OF a;

-- name: AutoTopupFacts :one
-- Read after the row is locked: another replica may have paid meanwhile.
SELECT coalesce((SELECT b.amount FROM ledger_account l JOIN ledger_balance b ON b.account_id = l.id
                 WHERE l.kind = 'renter_wallet' AND l.owner = @org_id::uuid AND l.currency = @currency), 0)::bigint AS available,
       (SELECT count(*) FROM topup t WHERE t.org_id = @org_id::uuid AND t.automatic AND t.state = 'pending') AS pending,
       (SELECT coalesce(sum(t.amount), 0) FROM topup t WHERE t.org_id = @org_id::uuid AND t.automatic
        AND t.state IN ('pending', 'succeeded') AND t.created_at > statement_timestamp() - interval '1 day')::bigint AS last_day,
       coalesce((SELECT extract(epoch FROM min(t.created_at) + interval '1 day' - clock_timestamp()) FROM topup t
                 WHERE t.org_id = @org_id::uuid AND t.automatic AND t.state IN ('pending', 'succeeded')
                   AND t.created_at > statement_timestamp() - interval '1 day'), 0)::float8 AS frees_s,
       EXISTS (SELECT FROM postpaid_org p WHERE p.org_id = @org_id::uuid AND p.state = 'on') AS postpaid;
