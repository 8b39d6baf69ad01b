-- name: OperatorsWithPending :many
-- Operators who have earned what is not payable yet.
SELECT a.org_id, a.currency
FROM ledger_account a JOIN ledger_balance b ON b.account_id = a.id
WHERE a.kind = 'host_pending' AND a.org_id IS NOT NULL AND b.amount > 0
ORDER BY a.org_id, a.currency;

-- name: EarnedSince :one
-- What an operator earned after the cutoff. from_id lies before it: ids are in the order of time, and have the index.
SELECT coalesce(sum(t.amount), 0)::bigint AS amount
FROM ledger_account a JOIN ledger_transfer t ON t.credit_account_id = a.id
WHERE a.kind = 'host_pending' AND a.org_id = @org_id AND a.currency = @currency
  AND t.id >= @from_id::uuid AND t.created_at > @cutoff;
