-- name: OrgsFound :many
-- Orgs as platform operators look for them, newest first: by id, or by a part of a name or an e-mail address.
SELECT o.id, o.name, o.personal, o.created_at,
       coalesce((SELECT u.email FROM membership m JOIN app_user u ON u.id = m.user_id WHERE m.org_id = o.id ORDER BY (m.role = 'owner') DESC, m.created_at LIMIT 1), '')::text AS email,
       EXISTS (SELECT FROM membership m JOIN app_user u ON u.id = m.user_id WHERE m.org_id = o.id AND u.email_verified_at IS NOT NULL) AS verified,
       coalesce((SELECT l.name FROM org_legal l WHERE l.org_id = o.id), '')::text AS legal_name,
       (SELECT count(*) FROM host h WHERE h.org_id = o.id AND h.state <> 'retired') AS hosts,
       (SELECT count(*) FROM cluster c WHERE c.org_id = o.id AND c.ended_at IS NULL) AS clusters,
       coalesce(b.wallet, 0)::bigint AS wallet, coalesce(b.held, 0)::bigint AS held, coalesce(b.pending, 0)::bigint AS pending, coalesce(b.payable, 0)::bigint AS payable
FROM org o
LEFT JOIN LATERAL (
    SELECT sum(x.amount) FILTER (WHERE a.kind = 'renter_wallet') AS wallet, sum(x.amount) FILTER (WHERE a.kind = 'renter_hold') AS held,
           sum(x.amount) FILTER (WHERE a.kind = 'host_pending') AS pending, sum(x.amount) FILTER (WHERE a.kind = 'host_payable') AS payable
    FROM ledger_account a JOIN ledger_balance x ON x.account_id = a.id
    WHERE a.org_id = o.id AND a.currency = @currency) b ON true
WHERE (sqlc.narg(before)::uuid IS NULL OR o.id < sqlc.narg(before)::uuid)
  AND (sqlc.narg(org)::uuid IS NULL OR o.id = sqlc.narg(org)::uuid)
  AND (@words::text = '' OR strpos(lower(o.name), lower(@words::text)) > 0
       OR EXISTS (SELECT FROM org_legal l WHERE l.org_id = o.id AND strpos(lower(l.name), lower(@words::text)) > 0)
       OR EXISTS (SELECT FROM membership m JOIN app_user u ON u.id = m.user_id WHERE m.org_id = o.id AND strpos(u.email, lower(@words::text)) > 0))
  AND (NOT @operators::boolean OR EXISTS (SELECT FROM host h WHERE h.org_id = o.id) OR EXISTS (SELECT FROM payout_account p WHERE p.org_id = o.id))
  AND (NOT @disputed::boolean OR EXISTS (SELECT FROM dispute d WHERE d.org_id = o.id AND d.state = 'open'))
ORDER BY o.id DESC
LIMIT @max_rows;

-- name: OrgNames :many
SELECT id, name FROM org WHERE id = ANY (@ids::uuid[]);

-- name: OrgMembers :many
SELECT u.id AS user_id, u.email, u.name, m.role, (u.email_verified_at IS NOT NULL)::boolean AS verified, u.admin, u.created_at
FROM membership m JOIN app_user u ON u.id = m.user_id WHERE m.org_id = $1 ORDER BY (m.role = 'owner') DESC, m.created_at, u.id;

-- name: OrgHosts :many
SELECT h.id, h.name, h.region, h.state, h.blocked, coalesce(s.connected, false)::boolean AS connected, s.last_sync_at,
       (SELECT count(*) FROM gpu g WHERE g.host_id = h.id) AS gpus,
       (SELECT count(*) FROM gpu g JOIN gpu_claim c ON c.gpu_id = g.id AND c.ended_at IS NULL AND c.kind = 'lease' WHERE g.host_id = h.id) AS leased
FROM host h LEFT JOIN host_status s ON s.host_id = h.id
WHERE h.org_id = $1 ORDER BY h.state = 'retired', h.name, h.id LIMIT $2;

-- name: OrgClusters :many
SELECT id, name, state, reason, node_count, gpus_per_node, rate, created_at, ended_at
FROM cluster WHERE org_id = $1 ORDER BY (ended_at IS NULL) DESC, id DESC LIMIT $2;

-- name: OrgDisputes :many
SELECT d.id, d.topup_id, d.invoice_id, d.kind, d.amount, d.held, d.currency, d.reason, d.state, d.paid_at, d.created_at, d.closed_at
FROM dispute d WHERE d.org_id = $1 ORDER BY d.created_at DESC, d.id LIMIT $2;

-- name: AdminCounts :one
-- scan: lookup
-- What wants a human now. Every part reads an index of few rows or a table that stays small.
SELECT (SELECT count(*) FROM payout_account WHERE failures > 0) AS payout_failures,
       (SELECT count(*) FROM payout_account WHERE stopped <> '') AS payouts_stopped,
       (SELECT count(*) FROM payout_review WHERE held > 0) AS reviews,
       (SELECT coalesce(sum(held), 0)::bigint FROM payout_review v WHERE v.held > 0 AND v.currency = @currency::text) AS in_review,
       (SELECT count(*) FROM dispute WHERE state = 'open') AS disputes,
       (SELECT coalesce(sum(amount), 0)::bigint FROM dispute d WHERE d.state = 'open' AND d.currency = @currency::text) AS disputed,
       (SELECT count(*) FROM postpaid_invoice i
        WHERE i.state IN ('open', 'uncollectible') AND (i.state = 'uncollectible' OR i.attempts > 0)
          AND NOT EXISTS (SELECT FROM postpaid_writeoff w WHERE w.invoice_id = i.id AND w.state IN ('asked', 'booked'))) AS invoices_unpaid,
       (SELECT count(*) FROM lease_meter WHERE frozen) AS frozen,
       (SELECT count(*) FROM (SELECT q.received_at FROM segment_quarantine q ORDER BY q.id DESC LIMIT 1000) q WHERE q.received_at > statement_timestamp() - interval '1 day') AS quarantined,
       (SELECT count(*) FROM stripe_outbox WHERE state = 'unknown') AS outbox_unknown,
       (SELECT count(*) FROM (SELECT m.failed_at, m.created_at FROM mail m ORDER BY m.id DESC LIMIT 10000) m WHERE m.failed_at IS NOT NULL AND m.created_at > statement_timestamp() - interval '7 days') AS mail_failed,
       (SELECT count(*) FROM dead_letter WHERE parked_at IS NOT NULL) AS dead_letters;

-- name: PlatformTotals :one
-- scan: lookup
-- The fleet now, and the demand of the last two weeks. Ids are ordered by creation: the parameters are the least ids of 7 and 14 days ago.
SELECT (SELECT count(*) FROM host WHERE retired_at IS NULL) AS hosts,
       (SELECT count(*) FROM host h JOIN host_status s ON s.host_id = h.id WHERE h.retired_at IS NULL AND s.connected) AS hosts_connected,
       (SELECT count(*) FROM gpu g JOIN host h ON h.id = g.host_id WHERE h.retired_at IS NULL AND g.present) AS gpus,
       (SELECT count(*) FROM gpu_claim WHERE ended_at IS NULL AND kind = 'lease') AS gpus_rented,
       (SELECT count(*) FROM cluster WHERE ended_at IS NULL AND running_at IS NULL) AS clusters_starting,
       (SELECT count(*) FROM cluster WHERE ended_at IS NULL AND running_at IS NOT NULL) AS clusters_running,
       (SELECT count(*) FROM app_user u WHERE u.id >= @user_week) AS sign_ups,
       (SELECT count(*) FROM app_user u WHERE u.id >= @user_fortnight AND u.id < @user_week) AS sign_ups_before,
       (SELECT count(*) FROM cluster c WHERE c.id >= @cluster_week) AS rents,
       (SELECT count(*) FROM cluster c WHERE c.id >= @cluster_fortnight AND c.id < @cluster_week) AS rents_before,
       (SELECT count(*) FROM cluster c WHERE c.id >= @cluster_week AND c.state = 'failed') AS failed,
       (SELECT count(*) FROM cluster c WHERE c.id >= @cluster_fortnight AND c.id < @cluster_week AND c.state = 'failed') AS failed_before;

-- name: PaidInByDay :many
-- What was paid in, by the days of UTC.
SELECT to_char(settled_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')::text AS day, sum(amount)::bigint AS amount
FROM topup WHERE state = 'succeeded' AND currency = @currency AND settled_at >= @since GROUP BY 1 ORDER BY 1;

-- name: PaidOutByDay :many
-- What was sent to operators, by the days of UTC.
SELECT to_char(settled_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')::text AS day, sum(amount)::bigint AS amount
FROM payout WHERE state = 'paid' AND currency = @currency AND settled_at >= @since GROUP BY 1 ORDER BY 1;

-- name: OrgSides :one
-- Whether an org has hosts that are not retired, and whether it has a cluster that has not ended.
SELECT EXISTS (SELECT FROM host h WHERE h.org_id = @org_id AND h.state <> 'retired') AS sells,
       EXISTS (SELECT FROM cluster c WHERE c.org_id = @org_id AND c.ended_at IS NULL) AS rents;
