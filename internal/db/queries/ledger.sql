-- name: FindLedgerAccounts :many
SELECT a.id, a.kind, a.owner, a.currency, EXISTS (SELECT FROM ledger_balance b WHERE b.account_id = a.id)::boolean AS has_balance
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

-- name: LockLedgerBalances :many
-- Wallets last: a transaction that charges for usage (holds, pending earnings) may lock the wallet next, never the reverse.
SELECT b.account_id, b.amount, b.credit, b.reserved, b.floor, a.kind, a.owner, a.currency
FROM (SELECT unnest(@kinds::text[]) AS kind, unnest(@owners::uuid[]) AS owner, unnest(@currencies::text[]) AS currency) u
JOIN ledger_account a ON a.kind = u.kind AND a.owner = u.owner AND a.currency = u.currency
JOIN ledger_balance b ON b.account_id = a.id
ORDER BY (a.kind = 'renter_wallet'), b.account_id
FOR UPDATE OF b;

-- name: LockLedgerBalancesInOrder :exec
-- The same order as above.
SELECT FROM ledger_balance b
JOIN ledger_account a ON a.id = b.account_id
WHERE b.account_id = ANY(@ids::uuid[])
ORDER BY (a.kind = 'renter_wallet'), b.account_id FOR UPDATE OF b;

-- name: SetLedgerCredit :execrows
UPDATE ledger_balance SET credit = @credit, floor = least(reserved - @credit::bigint, amount) WHERE account_id = @account_id AND floor IS NOT NULL;

-- name: SetLedgerReserved :execrows
UPDATE ledger_balance SET reserved = sqlc.arg(reserved), floor = least(sqlc.arg(reserved)::bigint - credit, amount) WHERE account_id = @account_id AND floor IS NOT NULL;

-- name: InsertLedgerTxs :many
INSERT INTO ledger_tx (id, kind, key, memo, ref, corrects)
SELECT unnest(@ids::uuid[]), unnest(@kinds::text[]), unnest(@keys::text[]), unnest(@memos::text[]), unnest(@refs::text[]),
       nullif(unnest(@corrects::uuid[]), '00000000-0000-0000-0000-000000000000')
ON CONFLICT (key) DO NOTHING
RETURNING id;

-- name: InsertNewLedgerTxs :exec
-- Entries under keys that no other transaction can have used; if one exists, this fails.
INSERT INTO ledger_tx (id, kind, key, memo, ref)
SELECT unnest(@ids::uuid[]), unnest(@kinds::text[]), unnest(@keys::text[]), unnest(@memos::text[]), unnest(@refs::text[]);

-- name: InsertLedgerTx :exec
-- An entry under a key that no other transaction can have used; if it exists, this fails.
INSERT INTO ledger_tx (id, kind, key, memo, ref) VALUES (@id, @kind, @key, @memo, @ref);

-- name: InsertLedgerTransfers :exec
-- A trigger moves the balances.
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

-- name: LedgerSpendable :one
SELECT greatest(0, b.amount + b.credit - b.reserved)::bigint AS amount
FROM ledger_account a
JOIN ledger_balance b ON b.account_id = a.id
WHERE a.kind = $1 AND a.owner = $2 AND a.currency = $3;

-- name: LedgerOrgBalances :many
-- What an org has in each kind of account.
SELECT a.kind, a.currency, coalesce(sum(b.amount), 0)::bigint AS amount, coalesce(sum(b.credit), 0)::bigint AS credit, coalesce(sum(b.reserved), 0)::bigint AS reserved
FROM ledger_account a
JOIN ledger_balance b ON b.account_id = a.id
WHERE a.org_id = $1 AND a.retired_at IS NULL
GROUP BY a.kind, a.currency;

-- name: LedgerBalancesOfOrgs :many
-- What several orgs have in each kind of account of a currency.
SELECT a.org_id, a.kind, coalesce(sum(b.amount), 0)::bigint AS amount, coalesce(sum(b.credit), 0)::bigint AS credit, coalesce(sum(b.reserved), 0)::bigint AS reserved
FROM ledger_account a
JOIN ledger_balance b ON b.account_id = a.id
WHERE a.org_id = ANY(@orgs::uuid[]) AND a.currency = @currency AND a.retired_at IS NULL
GROUP BY a.org_id, a.kind;

-- name: RetireLedgerAccount :exec
-- If there is nothing in it. Its balance is locked.
UPDATE ledger_account a SET retired_at = clock_timestamp()
WHERE a.kind = $1 AND a.owner = $2 AND a.currency = $3 AND a.retired_at IS NULL
  AND EXISTS (SELECT FROM ledger_balance b WHERE b.account_id = a.id AND b.amount = 0);

-- name: RetireLedgerHolds :execrows
-- Empty holds of clusters that are settled, and bonds of leases that were released, which were not retired then: those of
-- before there was such a thing.
-- scan: done
UPDATE ledger_account a SET retired_at = clock_timestamp()
WHERE a.id IN (
    SELECT x.id FROM ledger_account x JOIN ledger_balance b ON b.account_id = x.id
    WHERE x.org_id IS NOT NULL AND x.retired_at IS NULL AND x.kind IN ('renter_hold', 'bond_hold') AND b.amount = 0
      AND x.created_at < statement_timestamp() - interval '1 day'
      AND CASE x.kind WHEN 'renter_hold' THEN NOT EXISTS (SELECT FROM lease l WHERE l.cluster_id = x.owner AND l.settled_at IS NULL)
                      ELSE NOT EXISTS (SELECT FROM lease_bond r WHERE r.lease_id = x.owner AND r.released_at IS NULL) END
    LIMIT @max_rows
    FOR UPDATE OF b SKIP LOCKED);

-- name: LedgerHistory :many
-- One statement, so that an entry on its way into the chain is seen once. First what is not in the chain yet (n is NULL),
-- newest first, then lines of the chain below the one of before. Without a line of before all of both.
WITH tail AS (
    SELECT u.tx_id, f.currency, a.kind,
           sum(CASE WHEN f.credit_account_id = a.id THEN f.amount ELSE -f.amount END)::bigint AS amount
    FROM ledger_unlinked u
    JOIN ledger_transfer f ON f.tx_id = u.tx_id
    JOIN ledger_account a ON a.id IN (f.debit_account_id, f.credit_account_id)
    WHERE a.org_id = @org
    GROUP BY u.tx_id, f.currency, a.kind
), line AS (
    SELECT l.n, l.tx_id, l.currency, l.change, l.after
    FROM ledger_line l
    WHERE l.org_id = @org AND l.currency = @currency
      AND l.n < coalesce((SELECT k.n FROM ledger_line k WHERE k.org_id = @org AND k.tx_id = @before AND k.currency = @currency), 9223372036854775807)
    ORDER BY l.n DESC
    LIMIT @max_rows
), both_parts AS (
    SELECT 9223372036854775807 AS n, t.tx_id, jsonb_object_agg(t.kind, t.amount) AS change, '{}'::jsonb AS after
    FROM tail t
    WHERE t.currency = @currency
    GROUP BY t.tx_id
    UNION ALL
    SELECT n, tx_id, change, after FROM line
)
SELECT b.n::bigint AS n, x.id, x.kind, x.memo, x.ref, x.created_at, b.change::jsonb AS change, b.after::jsonb AS after,
       EXISTS (SELECT FROM ledger_line k WHERE k.org_id = @org AND k.tx_id = @before AND k.currency = @currency)::boolean AS before_is_linked
FROM both_parts b
JOIN ledger_tx x ON x.id = b.tx_id
ORDER BY b.n DESC, x.id DESC;

-- name: LockLedgerChain :exec
-- One writer: released with the transaction.
SELECT pg_advisory_xact_lock(727275);

-- name: TakeLedgerUnlinked :many
-- scan: in order
DELETE FROM ledger_unlinked
WHERE ctid = ANY (ARRAY(SELECT u.ctid FROM ledger_unlinked u ORDER BY u.tx_id LIMIT @max_rows))
RETURNING tx_id;

-- name: LedgerTxs :many
SELECT id, kind, key, memo, ref, corrects, created_at FROM ledger_tx WHERE id = ANY(@ids::uuid[]) ORDER BY id;

-- name: LedgerTransfersOf :many
SELECT f.id, f.tx_id, f.currency, f.amount,
       d.kind AS debit_kind, d.owner AS debit_owner, d.org_id AS debit_org,
       c.kind AS credit_kind, c.owner AS credit_owner, c.org_id AS credit_org
FROM ledger_transfer f
JOIN ledger_account d ON d.id = f.debit_account_id
JOIN ledger_account c ON c.id = f.credit_account_id
WHERE f.tx_id = ANY(@ids::uuid[])
ORDER BY f.tx_id, f.id;

-- name: LastLedgerBatch :one
-- scan: lookup
SELECT n, made_at, txs, root, prev, hash FROM ledger_batch ORDER BY n DESC LIMIT 1;

-- name: InsertLedgerBatch :exec
INSERT INTO ledger_batch (n, made_at, txs, root, prev, hash) VALUES ($1, $2, $3, $4, $5, $6);

-- name: InsertLedgerLinks :exec
INSERT INTO ledger_link (tx_id, batch, position)
SELECT u.id, @batch, u.position FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@positions::integer[]) AS position) u;

-- name: LastLedgerLines :many
-- scan: lookup
-- What each of the orgs had after its last entry.
SELECT u.org_id::uuid AS org_id, u.currency::text AS currency, l.after
FROM (SELECT unnest(@orgs::uuid[]) AS org_id, unnest(@currencies::text[]) AS currency) u
CROSS JOIN LATERAL (
    SELECT k.after FROM ledger_line k WHERE k.org_id = u.org_id AND k.currency = u.currency ORDER BY k.n DESC LIMIT 1) l;

-- name: InsertLedgerLines :exec
-- In this order.
INSERT INTO ledger_line (org_id, tx_id, currency, change, after)
SELECT u.org_id, u.tx_id, u.currency, u.change::jsonb, u.after::jsonb
FROM (SELECT unnest(@orgs::uuid[]) AS org_id, unnest(@txs::uuid[]) AS tx_id, unnest(@currencies::text[]) AS currency,
             unnest(@changes::text[]) AS change, unnest(@afters::text[]) AS after, generate_subscripts(@txs::uuid[], 1) AS i) u
ORDER BY u.i;

-- name: LedgerBatches :many
SELECT n, made_at, txs, root, prev, hash FROM ledger_batch WHERE n >= @first AND n <= @last ORDER BY n;

-- name: LedgerBatchTxIDs :many
SELECT tx_id FROM ledger_link WHERE batch = $1 ORDER BY position;

-- name: LedgerLinksOf :many
SELECT tx_id, batch, position FROM ledger_link WHERE tx_id = ANY(@ids::uuid[]) ORDER BY batch, position;

-- name: LedgerKindTotals :many
SELECT a.kind, a.currency, sum(e.amount)::text AS amount
FROM ledger_entry e
JOIN ledger_account a ON a.id = e.account_id
GROUP BY a.kind, a.currency
ORDER BY a.kind, a.currency;

-- name: LedgerMismatches :many
-- Balances that are not the sum of their transfers or below their floor, or that are missing or have no floor where their kind has one.
SELECT a.id, a.kind, (b.account_id IS NULL)::boolean AS missing, coalesce(b.amount, 0)::bigint AS cached, coalesce(sum(e.amount), 0)::text AS summed
FROM ledger_account a
LEFT JOIN ledger_balance b ON b.account_id = a.id
LEFT JOIN ledger_entry e ON e.account_id = a.id
WHERE b.account_id IS NOT NULL OR a.kind = ANY(@cached::text[])
GROUP BY a.id, a.kind, b.account_id, b.amount, b.floor
HAVING b.account_id IS NULL OR b.amount <> coalesce(sum(e.amount), 0) OR b.amount < b.floor OR b.floor IS NULL AND a.kind = ANY(@floored::text[])
ORDER BY a.id;

-- name: LedgerUnbacked :many
-- Credit that no terms lend, and reserves that no dispute claims.
SELECT a.id, a.kind, b.credit, b.reserved, ledger_credit_limit(a.id)::bigint AS lent, ledger_claims(a.id)::bigint AS claimed
FROM ledger_balance b JOIN ledger_account a ON a.id = b.account_id
WHERE (b.credit <> 0 OR b.reserved <> 0) AND (b.credit > ledger_credit_limit(a.id) OR b.reserved > ledger_claims(a.id))
ORDER BY a.id;

-- name: LedgerEmptyTxs :one
SELECT count(*) FROM ledger_tx x WHERE NOT EXISTS (SELECT FROM ledger_transfer t WHERE t.tx_id = x.id);

-- name: LedgerChargesOf :many
-- Usage of the object and what corrects it.
SELECT id FROM ledger_tx WHERE ref = @ref AND (kind = 'usage' OR corrects IS NOT NULL) ORDER BY id;

-- name: LedgerCorrectionsOfRef :many
-- All that corrects entries of an object.
SELECT x.id, x.kind, u.key AS corrected, u.created_at AS corrected_at
FROM ledger_tx x JOIN ledger_tx u ON u.id = x.corrects
WHERE x.ref = @ref AND x.corrects IS NOT NULL
ORDER BY x.id;

-- name: LedgerChargedSince :many
-- What was charged from a moment on by entries of the object whose keys begin so, by the kind of account that got it.
SELECT a.kind, sum(t.amount)::bigint AS amount
FROM ledger_tx x
JOIN ledger_transfer t ON t.tx_id = x.id
JOIN ledger_account a ON a.id = t.credit_account_id
WHERE x.ref = @ref AND x.kind = 'usage' AND starts_with(x.key, @prefix::text) AND x.created_at >= @since
GROUP BY a.kind;

-- name: LedgerOvercorrected :many
-- Leases of which more was given back than charged. A charge's key names its lease.
SELECT c.lease::text AS lease, c.given_back::text AS given_back, u.charged::text AS charged
FROM (
    SELECT u.ref, split_part(u.key, ':', 2) AS lease, sum(t.amount) AS given_back
    FROM ledger_tx x JOIN ledger_tx u ON u.id = x.corrects JOIN ledger_transfer t ON t.tx_id = x.id
    WHERE x.corrects IS NOT NULL AND u.kind = 'usage'
    GROUP BY 1, 2) c
CROSS JOIN LATERAL (
    SELECT coalesce(sum(t.amount), 0) AS charged
    FROM ledger_tx x JOIN ledger_transfer t ON t.tx_id = x.id
    WHERE x.ref = c.ref AND x.kind = 'usage' AND split_part(x.key, ':', 2) = c.lease) u
WHERE c.given_back > u.charged
ORDER BY 1;

-- name: LockLedgerCorrections :exec
-- Serialises transactions that correct an entry. Released with the transaction.
SELECT pg_advisory_xact_lock(hashtextextended(@id::text, 727276));

-- name: LedgerCorrections :many
SELECT id FROM ledger_tx WHERE corrects = @id ORDER BY id;

-- name: LedgerBelowZero :many
-- scan: page
-- Balances of orgs below zero, or below their credit, the lowest first. What orgs owe is no such balance: it is below zero by
-- its nature.
SELECT a.kind, a.owner, a.org_id, a.currency, b.amount
FROM ledger_balance b
JOIN ledger_account a ON a.id = b.account_id
WHERE b.amount < -b.credit AND a.org_id IS NOT NULL AND a.kind <> 'renter_receivable'
ORDER BY b.amount, a.id
LIMIT @max_rows;

-- name: SearchLedgerTxsOfOrg :many
-- What moved the org's money: the chain's lines, and what is not in the chain yet.
(SELECT l.tx_id AS id FROM ledger_line l
 WHERE l.org_id = @org AND (@before::uuid = '00000000-0000-0000-0000-000000000000' OR l.tx_id < @before::uuid)
 ORDER BY l.tx_id DESC
 LIMIT @max_rows)
UNION
SELECT f.tx_id
FROM ledger_unlinked u
JOIN ledger_transfer f ON f.tx_id = u.tx_id
JOIN ledger_account a ON a.id IN (f.debit_account_id, f.credit_account_id)
WHERE a.org_id = @org AND (@before::uuid = '00000000-0000-0000-0000-000000000000' OR f.tx_id < @before::uuid)
ORDER BY id DESC
LIMIT @max_rows;

-- name: SearchLedgerTxs :many
-- By id, key or what it belongs to.
SELECT id FROM ledger_tx
WHERE (id = @id OR key = @text OR ref = @text) AND (@before::uuid = '00000000-0000-0000-0000-000000000000' OR id < @before::uuid)
ORDER BY id DESC
LIMIT @max_rows;

-- name: LedgerTransferIDs :many
SELECT f.id FROM ledger_transfer f JOIN ledger_tx x ON x.id = f.tx_id WHERE x.key = $1 ORDER BY f.id;

-- name: LockLedgerDays :exec
-- One replica closes days at a time. Released with the transaction.
SELECT pg_advisory_xact_lock(727292);
