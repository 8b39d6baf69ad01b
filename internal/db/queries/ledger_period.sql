-- The ledger of a period. An entry belongs to the day (UTC) in which its batch was made, a minute or so after it was booked: so every
-- list and total of a period is of the same entries.

-- name: LedgerBatchBefore :one
-- scan: lookup
-- The last batch that was made before a moment; 0: none.
SELECT coalesce((SELECT b.n FROM ledger_batch b WHERE b.made_at < @at ORDER BY b.made_at DESC, b.n DESC LIMIT 1), 0)::bigint AS n;

-- name: LedgerKindsAt :many
-- scan: lookup
-- The balances of all accounts of a kind after a batch: closed days from their totals, the rest from entries.
WITH closed AS (
    SELECT coalesce((SELECT d.through_batch FROM ledger_day d WHERE d.through_batch <= @batch ORDER BY d.through_batch DESC LIMIT 1), 0) AS through
)
SELECT t.kind::text AS kind, t.currency::text AS currency, sum(t.amount)::text AS amount
FROM (SELECT k.kind, k.currency, k.change AS amount
      FROM ledger_day d JOIN ledger_day_kind k ON k.day = d.n
      WHERE d.through_batch <= @batch
      UNION ALL
      SELECT a.kind, a.currency, CASE WHEN a.id = f.credit_account_id THEN f.amount ELSE -f.amount END::numeric
      FROM ledger_link l
      JOIN ledger_transfer f ON f.tx_id = l.tx_id
      JOIN ledger_account a ON a.id IN (f.debit_account_id, f.credit_account_id)
      WHERE l.batch > (SELECT through FROM closed) AND l.batch <= @batch) t
GROUP BY t.kind, t.currency
ORDER BY t.kind, t.currency;

-- name: LedgerFlows :many
-- What was booked in batches after one and through another, by month (UTC) and by the kinds of entries and accounts.
WITH sealed AS (
    SELECT d.n, d.through_batch FROM ledger_day d WHERE d.seal IS NOT NULL AND d.after_batch >= sqlc.arg(after)::bigint AND d.through_batch <= sqlc.arg(through)::bigint
), open AS (
    SELECT greatest(sqlc.arg(after)::bigint, coalesce((SELECT max(s.through_batch) FROM sealed s), 0)) AS after
)
SELECT to_char(t.made_at AT TIME ZONE 'UTC', 'YYYY-MM')::text AS month, t.kind::text AS kind, t.debit_kind::text AS debit_kind, t.credit_kind::text AS credit_kind,
       t.currency::text AS currency, sum(t.transfers)::bigint AS transfers, sum(t.amount)::text AS amount
FROM (SELECT b.made_at, f.kind, f.debit_kind, f.credit_kind, f.currency, f.transfers, f.amount
      FROM sealed s JOIN ledger_batch b ON b.n = s.through_batch JOIN ledger_day_flow f ON f.day = s.n
      UNION ALL
      SELECT b.made_at, x.kind, d.kind, c.kind, f.currency, 1, f.amount
      FROM ledger_batch b
      JOIN ledger_link l ON l.batch = b.n
      JOIN ledger_tx x ON x.id = l.tx_id
      JOIN ledger_transfer f ON f.tx_id = l.tx_id
      JOIN ledger_account d ON d.id = f.debit_account_id
      JOIN ledger_account c ON c.id = f.credit_account_id
      WHERE b.n > (SELECT after FROM open) AND b.n <= sqlc.arg(through)::bigint) t
GROUP BY 1, t.kind, t.debit_kind, t.credit_kind, t.currency
ORDER BY 1, t.kind, t.debit_kind, t.credit_kind, t.currency;

-- name: LedgerJournal :many
-- scan: page
-- Entries in the order of the chain after a place in it, with their transfers. An entry's transfers come together.
SELECT k.batch, k.position, b.made_at, x.id, x.kind, x.key, x.memo, x.ref, x.created_at, f.currency, f.amount,
       d.kind AS debit_kind, d.org_id AS debit_org, c.kind AS credit_kind, c.org_id AS credit_org
FROM (SELECT l.tx_id, l.batch, l.position FROM ledger_link l JOIN ledger_tx y ON y.id = l.tx_id
      WHERE (l.batch, l.position) > (@after_batch::bigint, @after_position::integer) AND l.batch <= @through::bigint
        AND (@kind::text = '' OR y.kind = @kind::text)
      ORDER BY l.batch, l.position
      LIMIT @max_rows) k
JOIN ledger_batch b ON b.n = k.batch
JOIN ledger_tx x ON x.id = k.tx_id
JOIN ledger_transfer f ON f.tx_id = k.tx_id
JOIN ledger_account d ON d.id = f.debit_account_id
JOIN ledger_account c ON c.id = f.credit_account_id
ORDER BY k.batch, k.position, f.id;

-- name: LedgerSealedThrough :one
-- The last sealed day that ends with a batch or before it: its batch, and its last line. Zeros: none.
SELECT coalesce(max(d.through_batch), 0)::bigint AS batch, coalesce(max(d.through_line), 0)::bigint AS line
FROM ledger_day d WHERE d.seal IS NOT NULL AND d.through_batch <= @batch;

-- name: LedgerOrgsAt :many
-- What organisations had after a line, by their ids. One that had nothing is left out.
SELECT o.id, o.name, l.after
FROM org o
CROSS JOIN LATERAL (SELECT k.after FROM ledger_line k WHERE k.org_id = o.id AND k.currency = @currency AND k.n <= @line ORDER BY k.n DESC LIMIT 1) l
WHERE o.id > @after_id::uuid AND EXISTS (SELECT FROM jsonb_each_text(l.after) e WHERE e.value <> '0')
ORDER BY o.id
LIMIT @max_rows;
