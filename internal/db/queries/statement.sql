-- name: HostOwner :one
SELECT org_id FROM host WHERE id = $1;

-- name: HostOfLease :one
SELECT host_id FROM lease WHERE id = $1;

-- name: HostNames :many
SELECT id, name FROM host WHERE id = ANY (@ids::uuid[]);

-- name: ClusterNames :many
-- The person is the one who rented it; "" once that account is deleted.
SELECT c.id, c.name, c.project, c.labels, coalesce(u.email, '')::text AS person
FROM cluster c LEFT JOIN app_user u ON u.id = c.created_by
WHERE c.id = ANY (@ids::uuid[]);

-- name: CreditsForUsage :many
-- What came back to an org's wallet between two times for usage it was charged: credits for a host's fault, compensations.
SELECT x.id, x.kind, x.memo, x.ref, x.created_at, sum(f.amount)::bigint AS amount
FROM ledger_account a
JOIN ledger_transfer f ON f.credit_account_id = a.id
JOIN ledger_tx x ON x.id = f.tx_id
WHERE a.org_id = @org_id AND a.kind = 'renter_wallet' AND a.currency = @currency
  AND f.id >= @from_id::uuid -- before from_time: ids are in the order of time, and have the index
  AND x.kind IN ('service_credit', 'compensation') AND x.created_at >= @from_time AND x.created_at < @to_time
GROUP BY x.id
ORDER BY x.id;

-- name: ReturnedByOperator :many
-- What went back of an operator's earnings between two times, and of which charge: credits for their hosts' faults,
-- compensations.
SELECT x.id, x.kind, x.memo, x.ref, x.created_at, coalesce(c.key, '')::text AS charge_key, sum(f.amount)::bigint AS amount
FROM ledger_account a
JOIN ledger_transfer f ON f.debit_account_id = a.id
JOIN ledger_tx x ON x.id = f.tx_id
LEFT JOIN ledger_tx c ON c.id = x.corrects
WHERE a.org_id = @org_id AND a.kind = 'host_pending' AND a.currency = @currency
  AND f.id >= @from_id::uuid -- before from_time: ids are in the order of time, and have the index
  AND x.kind IN ('service_credit', 'compensation') AND x.created_at >= @from_time AND x.created_at < @to_time
GROUP BY x.id, c.key
ORDER BY x.id;

-- name: EarnedByLeaseSince :many
-- What an operator earned with clusters (their shown ids) after the cutoff, by the charge's lease, and when last. from_id lies before it.
-- The charges of these clusters are read first: the other way round, all that the operator earned since then would be.
WITH charge AS MATERIALIZED (
    SELECT x.id, x.key FROM ledger_tx x
    WHERE x.ref = ANY (@clusters::text[]) AND x.ref <> '' AND x.id >= @from_id::uuid AND x.kind = 'usage'
)
SELECT split_part(c.key, ':', 2)::text AS lease, sum(t.amount)::bigint AS amount, max(t.created_at)::timestamptz AS last_at
FROM charge c
JOIN ledger_transfer t ON t.tx_id = c.id
JOIN ledger_account a ON a.id = t.credit_account_id
WHERE a.kind = 'host_pending' AND a.org_id = @org_id AND a.currency = @currency AND t.created_at > @cutoff
GROUP BY 1;

-- name: StandbyOfOperator :many
-- What an operator's hosts received for standing by between two times, and what its bonds paid (then the amount is below
-- zero). from_id lies before the first time.
SELECT x.id, x.kind, x.key, x.memo, x.ref, x.created_at, sum(t.amount)::bigint AS amount
FROM ledger_account a JOIN ledger_transfer t ON t.credit_account_id = a.id JOIN ledger_tx x ON x.id = t.tx_id
WHERE a.org_id = @org_id AND a.kind = 'host_pending' AND a.currency = @currency AND x.kind IN ('standby', 'relief')
  AND t.id >= @from_id::uuid AND x.created_at >= @from_time AND x.created_at < @to_time
GROUP BY x.id
UNION ALL
SELECT x.id, 'bond', x.key, x.memo, x.ref, x.created_at, (-sum(t.amount))::bigint
FROM ledger_account a JOIN ledger_transfer t ON t.debit_account_id = a.id JOIN ledger_tx x ON x.id = t.tx_id
WHERE a.org_id = @org_id AND a.kind = 'bond_hold' AND a.currency = @currency AND x.kind = 'standby'
  AND t.id >= @from_id::uuid AND x.created_at >= @from_time AND x.created_at < @to_time
GROUP BY x.id
ORDER BY 1, 2;
