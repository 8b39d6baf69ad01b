-- What was charged for storage, for statements.

-- name: StoragePosted :many
-- An org's postings between two times, oldest first, with the time of the one before of the same domain.
SELECT x.id, x.ref, x.created_at, p.created_at AS previous_at, sum(f.amount)::bigint AS amount
FROM ledger_account a
JOIN ledger_transfer f ON f.debit_account_id = a.id
JOIN ledger_tx x ON x.id = f.tx_id
LEFT JOIN ledger_tx p ON p.key = 'storage:' || x.ref || ':' || (substring(x.key from '[0-9]+$')::bigint - 1)
WHERE a.org_id = @org_id AND a.kind = 'renter_wallet' AND a.currency = @currency
  AND f.id >= @from_id::uuid -- before from_time: ids are in the order of time, and have the index
  AND x.kind = 'storage' AND x.created_at >= @from_time AND x.created_at < @to_time
GROUP BY x.id, p.id
ORDER BY x.id;

-- name: DomainNames :many
-- The names of the volumes that shared domains since a moment; of those that were there before, if there is none.
SELECT v.domain_id, coalesce(string_agg(v.name, ', ' ORDER BY v.created_at, v.id) FILTER (WHERE v.deleted_at IS NULL OR v.deleted_at >= @since::timestamptz),
       string_agg(v.name, ', ' ORDER BY v.created_at, v.id))::text AS names
FROM volume v WHERE v.domain_id = ANY(@ids::uuid[])
GROUP BY v.domain_id;
