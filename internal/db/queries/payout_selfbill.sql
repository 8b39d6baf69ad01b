-- name: OperatorsToBill :many
-- Operators whose earnings moved in a month, and who have no self-billing document for it. from_id and to_id bound the ids:
-- they are in the order of time, and have the index.
SELECT a.org_id
FROM ledger_account a
WHERE a.kind = 'host_pending' AND a.currency = @currency AND a.org_id > @after_org::uuid
  AND NOT EXISTS (SELECT FROM document d WHERE d.key = 'self_billing:' || a.org_id::text || ':' || @month::text || ':' || a.currency)
  AND (EXISTS (SELECT FROM ledger_transfer t WHERE t.credit_account_id = a.id AND t.id >= @from_id::uuid AND t.id < @to_id::uuid
               AND t.created_at >= @since AND t.created_at < @until)
    OR EXISTS (SELECT FROM ledger_transfer t JOIN ledger_tx x ON x.id = t.tx_id WHERE t.debit_account_id = a.id AND t.id >= @from_id::uuid AND t.id < @to_id::uuid
               AND t.created_at >= @since AND t.created_at < @until AND x.kind NOT IN ('payout_mature', 'payout_paid')))
ORDER BY a.org_id
LIMIT @max_rows;

-- name: OperatorFees :one
-- The platform's fees, less what it gave back of them, in the entries that moved an operator's earnings.
SELECT coalesce(sum(CASE WHEN c.kind = 'platform_fee' THEN f.amount ELSE -f.amount END), 0)::bigint AS fee
FROM (SELECT t.tx_id
      FROM ledger_account a JOIN ledger_transfer t ON t.credit_account_id = a.id
      WHERE a.org_id = @org_id AND a.currency = @currency AND a.kind = 'host_pending'
        AND t.id >= @from_id::uuid AND t.id < @to_id::uuid AND t.created_at >= @since AND t.created_at < @until
      UNION
      SELECT t.tx_id
      FROM ledger_account a JOIN ledger_transfer t ON t.debit_account_id = a.id
      WHERE a.org_id = @org_id AND a.currency = @currency AND a.kind = 'host_pending'
        AND t.id >= @from_id::uuid AND t.id < @to_id::uuid AND t.created_at >= @since AND t.created_at < @until) x
JOIN ledger_transfer f ON f.tx_id = x.tx_id
JOIN ledger_account c ON c.id = f.credit_account_id
JOIN ledger_account d ON d.id = f.debit_account_id
WHERE c.kind = 'platform_fee' OR d.kind = 'platform_fee';
