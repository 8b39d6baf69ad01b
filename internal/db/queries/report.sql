-- name: OrgZone :one
SELECT zone FROM org WHERE id = $1;

-- name: HostOwner :one
SELECT org_id FROM host WHERE id = $1;

-- name: HostNames :many
SELECT id, name FROM host WHERE id = ANY (@ids::uuid[]);

-- name: ClusterNames :many
SELECT id, name, project, labels FROM cluster WHERE id = ANY (@ids::uuid[]);

-- name: CreditsForUsage :many
-- What came back to an org's wallet between two times for usage it was charged: credits for a host's fault, compensations.
SELECT x.id, x.kind, x.memo, x.ref, x.created_at, sum(f.amount)::bigint AS amount
FROM ledger_account a
JOIN ledger_transfer f ON f.credit_account_id = a.id
JOIN ledger_tx x ON x.id = f.tx_id
WHERE a.org_id = @org_id AND a.kind = 'renter_wallet' AND a.currency = @currency
  AND x.kind IN ('service_credit', 'compensation') AND x.created_at >= @from_time AND x.created_at < @to_time
GROUP BY x.id
ORDER BY x.id;
