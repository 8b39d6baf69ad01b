-- name: FindLedgerAccounts :batchmany
SELECT a.id, a.kind, a.owner, a.currency
FROM (SELECT unnest(@kinds::text[]) AS kind, unnest(@owners::uuid[]) AS owner, unnest(@currencies::text[]) AS currency) u
JOIN ledger_account a ON a.kind = u.kind AND a.owner = u.owner AND a.currency = u.currency;

-- name: InsertLedgerAccounts :exec
INSERT INTO ledger_account (id, kind, owner, org_id, currency)
SELECT unnest(@ids::uuid[]), unnest(@kinds::text[]), unnest(@owners::uuid[]),
       nullif(unnest(@orgs::uuid[]), '00000000-0000-0000-0000-000000000000'), unnest(@currencies::text[])
ON CONFLICT (kind, owner, currency) DO NOTHING;

-- name: InsertLedgerBalances :exec
-- For those of the accounts whose kinds have one. An id that lost to a concurrent transaction's is not there; that one
-- made the balance too.
INSERT INTO ledger_balance (account_id, amount, floor)
SELECT a.id, 0, CASE WHEN a.kind = ANY(@floored::text[]) THEN 0 END
FROM ledger_account a
WHERE a.id = ANY(@ids::uuid[]) AND a.kind = ANY(@cached::text[])
ON CONFLICT (account_id) DO NOTHING;

-- name: LockLedgerBalances :batchmany
SELECT b.account_id, b.amount, b.floor, a.kind, a.owner, a.currency
FROM (SELECT unnest(@kinds::text[]) AS kind, unnest(@owners::uuid[]) AS owner, unnest(@currencies::text[]) AS currency) u
JOIN ledger_account a ON a.kind = u.kind AND a.owner = u.owner AND a.currency = u.currency
JOIN ledger_balance b ON b.account_id = a.id
ORDER BY b.account_id
FOR UPDATE OF b;

-- name: AddLedgerBalances :exec
UPDATE ledger_balance b
SET amount = b.amount + u.delta
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@deltas::bigint[]) AS delta) u
WHERE b.account_id = u.id;

-- name: InsertLedgerTxs :many
INSERT INTO ledger_tx (id, kind, key, memo, ref, corrects)
SELECT unnest(@ids::uuid[]), unnest(@kinds::text[]), unnest(@keys::text[]), unnest(@memos::text[]), unnest(@refs::text[]),
       nullif(unnest(@corrects::uuid[]), '00000000-0000-0000-0000-000000000000')
ON CONFLICT (key) DO NOTHING
RETURNING id;

-- name: InsertLedgerTx :exec
-- An entry under a key that nobody can have used; should it be there, this fails.
INSERT INTO ledger_tx (id, kind, key, memo, ref) VALUES (@id, @kind, @key, @memo, @ref);

-- name: InsertLedgerTransfers :exec
INSERT INTO ledger_transfer (id, tx_id, debit_account_id, credit_account_id, currency, amount)
SELECT unnest(@ids::uuid[]), unnest(@txs::uuid[]), unnest(@debits::uuid[]), unnest(@credits::uuid[]),
       unnest(@currencies::text[]), unnest(@amounts::bigint[]);

-- name: LedgerBalance :one
SELECT coalesce(
    (SELECT b.amount FROM ledger_balance b WHERE b.account_id = a.id),
    (SELECT coalesce(sum(e.amount), 0)::bigint FROM ledger_entry e WHERE e.account_id = a.id)
)::bigint AS amount
FROM ledger_account a
WHERE a.kind = $1 AND a.owner = $2 AND a.currency = $3;

-- name: LedgerOrgBalances :many
-- What an org has in each kind of account.
SELECT a.kind, a.currency, coalesce(sum(b.amount), 0)::bigint AS amount
FROM ledger_account a
JOIN ledger_balance b ON b.account_id = a.id
WHERE a.org_id = $1
GROUP BY a.kind, a.currency;

-- name: LedgerHistory :many
WITH change AS (
    SELECT e.tx_id, a.kind, e.amount
    FROM ledger_account a
    JOIN ledger_entry e ON e.account_id = a.id
    WHERE a.org_id = @org
), per_tx AS (
    SELECT tx_id,
           coalesce(sum(amount) FILTER (WHERE kind = 'renter_wallet'), 0) AS available,
           coalesce(sum(amount) FILTER (WHERE kind = 'renter_hold'), 0) AS held,
           coalesce(sum(amount) FILTER (WHERE kind = 'host_pending'), 0) AS earned
    FROM change
    GROUP BY tx_id
), running AS (
    SELECT tx_id, available, held, earned,
           sum(available) OVER w AS available_after, sum(held) OVER w AS held_after, sum(earned) OVER w AS earned_after
    FROM per_tx
    WINDOW w AS (ORDER BY tx_id)
)
SELECT x.id, x.kind, x.memo, x.ref, x.created_at,
       r.available::bigint AS available, r.held::bigint AS held, r.earned::bigint AS earned,
       r.available_after::bigint AS available_after, r.held_after::bigint AS held_after, r.earned_after::bigint AS earned_after
FROM running r
JOIN ledger_tx x ON x.id = r.tx_id
WHERE @before::uuid = '00000000-0000-0000-0000-000000000000' OR x.id < @before::uuid
ORDER BY x.id DESC
LIMIT @max_rows;

-- name: LedgerKindTotals :many
SELECT a.kind, a.currency, sum(e.amount)::text AS amount
FROM ledger_entry e
JOIN ledger_account a ON a.id = e.account_id
GROUP BY a.kind, a.currency
ORDER BY a.kind, a.currency;

-- name: LedgerMismatches :many
-- Cached balances that are not the sum of their transfers, or below their floor.
SELECT a.id, a.kind, b.amount AS cached, coalesce(sum(e.amount), 0)::text AS summed
FROM ledger_balance b
JOIN ledger_account a ON a.id = b.account_id
LEFT JOIN ledger_entry e ON e.account_id = b.account_id
GROUP BY a.id, a.kind, b.amount, b.floor
HAVING b.amount <> coalesce(sum(e.amount), 0) OR b.amount < b.floor
ORDER BY a.id;

-- name: LedgerEmptyTxs :one
SELECT count(*) FROM ledger_tx x WHERE NOT EXISTS (SELECT FROM ledger_transfer t WHERE t.tx_id = x.id);
