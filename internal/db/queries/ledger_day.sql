-- Frozen totals of closed days, and what the check reads in addition: entries that are in no closed day.

-- name: LastLedgerDay :one
-- scan: lookup
SELECT n, through_batch FROM ledger_day ORDER BY n DESC LIMIT 1;

-- name: NextLedgerDay :one
-- The last batch to close after another: the last of the day of the first open batch, if that day is over for an hour, and at most
-- max_batches further.
SELECT coalesce(max(b.n), 0)::bigint AS through
FROM ledger_batch o
JOIN ledger_batch b ON b.n >= o.n AND b.n < o.n + sqlc.arg(max_batches)::bigint
                   AND b.made_at < date_trunc('day', o.made_at, 'UTC') + interval '1 day'
WHERE o.n = sqlc.arg(after)::bigint + 1 AND date_trunc('day', o.made_at, 'UTC') + interval '25 hours' < statement_timestamp();

-- name: CloseLedgerDay :exec
WITH moved AS MATERIALIZED (
    SELECT f.debit_account_id, f.credit_account_id, f.amount, f.tx_id
    FROM ledger_link k JOIN ledger_transfer f ON f.tx_id = k.tx_id
    WHERE k.batch > @after AND k.batch <= @through
), change AS (
    SELECT e.account_id, sum(e.amount) AS amount
    FROM (SELECT credit_account_id AS account_id, amount::numeric AS amount FROM moved
          UNION ALL SELECT debit_account_id, -amount::numeric FROM moved) e
    GROUP BY e.account_id
), day AS (
    INSERT INTO ledger_day (n, after_batch, through_batch, txs, transfers, hash)
    SELECT @n, @after, @through, (SELECT coalesce(sum(b.txs), 0) FROM ledger_batch b WHERE b.n > @after AND b.n <= @through),
           (SELECT count(*) FROM moved), (SELECT b.hash FROM ledger_batch b WHERE b.n = @through)
), accounts AS (
    INSERT INTO ledger_day_account (account_id, day, change, after)
    SELECT c.account_id, @n, c.amount,
           c.amount + coalesce((SELECT p.after FROM ledger_day_account p WHERE p.account_id = c.account_id ORDER BY p.day DESC LIMIT 1), 0)
    FROM change c
)
INSERT INTO ledger_day_kind (day, kind, currency, change)
SELECT @n, a.kind, a.currency, sum(c.amount) FROM change c JOIN ledger_account a ON a.id = c.account_id GROUP BY a.kind, a.currency;

-- name: LedgerDayToSeal :one
-- scan: lookup
-- The first closed day without a seal.
SELECT n, after_batch, through_batch FROM ledger_day WHERE seal IS NULL ORDER BY n LIMIT 1;

-- name: InsertLedgerDayFlows :exec
INSERT INTO ledger_day_flow (day, kind, debit_kind, credit_kind, currency, transfers, amount)
SELECT @day::bigint, x.kind, d.kind, c.kind, f.currency, count(*), sum(f.amount)
FROM ledger_link k
JOIN ledger_tx x ON x.id = k.tx_id
JOIN ledger_transfer f ON f.tx_id = k.tx_id
JOIN ledger_account d ON d.id = f.debit_account_id
JOIN ledger_account c ON c.id = f.credit_account_id
WHERE k.batch > sqlc.arg(after)::bigint AND k.batch <= sqlc.arg(through)::bigint
GROUP BY x.kind, d.kind, c.kind, f.currency;

-- name: LastLedgerLineOf :one
-- The last line of the entries of these batches; of earlier ones if they have none. Lines are in the order of batches.
SELECT coalesce((SELECT max(l.n)
                 FROM ledger_link k
                 JOIN ledger_transfer f ON f.tx_id = k.tx_id
                 JOIN ledger_account a ON a.id IN (f.debit_account_id, f.credit_account_id)
                 JOIN ledger_line l ON l.org_id = a.org_id AND l.tx_id = k.tx_id AND l.currency = f.currency
                 WHERE k.batch > sqlc.arg(after)::bigint AND k.batch <= sqlc.arg(through)::bigint),
                (SELECT d.through_line FROM ledger_day d WHERE d.through_batch = sqlc.arg(after)::bigint), 0)::bigint AS n;

-- name: SealLedgerDay :exec
UPDATE ledger_day SET through_line = sqlc.arg(through_line)::bigint, seal = ledger_day_seal(n, sqlc.arg(through_line)::bigint) WHERE n = @n;

-- name: LedgerDayToCheck :one
-- scan: lookup
-- The closed day that was compared with its entries longest ago.
SELECT d.n, d.after_batch, d.through_batch, d.txs, d.transfers, d.hash, d.checked_at, d.through_line,
       coalesce((SELECT p.through_batch FROM ledger_day p WHERE p.n = d.n - 1), 0)::bigint AS before_batch,
       coalesce((SELECT p.through_line FROM ledger_day p WHERE p.n = d.n - 1), 0)::bigint AS after_line
FROM ledger_day d ORDER BY d.checked_at, d.n LIMIT 1;

-- name: LedgerDayChecked :exec
UPDATE ledger_day SET checked_at = clock_timestamp(), problem = @problem WHERE n = @n;

-- name: LedgerDayProblems :many
-- A day that was checked in the future would not be checked again.
SELECT n, CASE WHEN problem = '' THEN 'its check is dated in the future' ELSE problem END AS problem FROM ledger_day
WHERE problem <> '' OR checked_at > clock_timestamp() + interval '5 minutes' ORDER BY n;

-- name: LedgerDaySealed :one
-- Whether the seal of a day is still that of its rows. A day that an earlier version closed has none until the job has sealed it.
SELECT coalesce(seal = ledger_day_seal(n, through_line), seal IS NULL AND through_line IS NULL)::boolean FROM ledger_day WHERE n = @n;

-- name: LedgerLineDifferences :one
-- How many lines of a closed day are not what its entries did, or do not carry on what their organisation had before; and how many
-- flows are not what its entries add up to.
WITH moved AS MATERIALIZED (
    SELECT k.tx_id, f.currency, f.amount, f.debit_account_id, f.credit_account_id, d.kind AS debit_kind, d.org_id AS debit_org,
           c.kind AS credit_kind, c.org_id AS credit_org
    FROM ledger_link k
    JOIN ledger_transfer f ON f.tx_id = k.tx_id
    JOIN ledger_account d ON d.id = f.debit_account_id
    JOIN ledger_account c ON c.id = f.credit_account_id
    WHERE k.batch > @after AND k.batch <= @through
), wanted AS (
    SELECT s.org_id, s.tx_id, s.currency, jsonb_object_agg(s.kind, s.amount) AS change
    FROM (SELECT e.org_id, e.tx_id, e.currency, e.kind, sum(e.amount) AS amount
          FROM (SELECT tx_id, currency, debit_org AS org_id, debit_kind AS kind, -amount::numeric AS amount FROM moved WHERE debit_org IS NOT NULL
                UNION ALL
                SELECT tx_id, currency, credit_org, credit_kind, amount::numeric FROM moved WHERE credit_org IS NOT NULL) e
          GROUP BY e.org_id, e.tx_id, e.currency, e.kind) s
    GROUP BY s.org_id, s.tx_id, s.currency
), line AS MATERIALIZED (
    SELECT l.n, l.org_id, l.tx_id, l.currency, l.change, l.after FROM ledger_line l WHERE l.n > @after_line AND l.n <= @through_line
), carried AS (
    SELECT l.change, l.after,
           coalesce(lag(l.after) OVER (PARTITION BY l.org_id, l.currency ORDER BY l.n),
                    (SELECT p.after FROM ledger_line p WHERE p.org_id = l.org_id AND p.currency = l.currency AND p.n < l.n ORDER BY p.n DESC LIMIT 1),
                    '{}') AS before
    FROM line l
), flow AS (
    SELECT x.kind, m.debit_kind, m.credit_kind, m.currency, count(*) AS transfers, sum(m.amount) AS amount
    FROM moved m JOIN ledger_tx x ON x.id = m.tx_id
    GROUP BY x.kind, m.debit_kind, m.credit_kind, m.currency
)
SELECT (SELECT count(*) FROM wanted w FULL JOIN line l ON l.org_id = w.org_id AND l.tx_id = w.tx_id AND l.currency = w.currency
        WHERE w.change IS DISTINCT FROM l.change)::bigint AS lines,
       (SELECT count(*) FROM carried c
        WHERE EXISTS (SELECT FROM jsonb_object_keys(c.before || c.after) k(kind)
                      WHERE coalesce((c.after ->> k.kind)::numeric, 0)
                            <> coalesce((c.before ->> k.kind)::numeric, 0) + coalesce((c.change ->> k.kind)::numeric, 0)))::bigint AS carried,
       (SELECT count(*) FROM flow w FULL JOIN (SELECT y.kind, y.debit_kind, y.credit_kind, y.currency, y.transfers, y.amount
                                               FROM ledger_day_flow y WHERE y.day = @n) f
        ON f.kind = w.kind AND f.debit_kind = w.debit_kind AND f.credit_kind = w.credit_kind AND f.currency = w.currency
        WHERE (w.transfers, w.amount) IS DISTINCT FROM (f.transfers, f.amount))::bigint AS flows;

-- name: LedgerDayDifferences :one
-- What of a closed day's totals is not what its entries add up to.
WITH moved AS MATERIALIZED (
    SELECT f.debit_account_id, f.credit_account_id, f.amount
    FROM ledger_link k JOIN ledger_transfer f ON f.tx_id = k.tx_id
    WHERE k.batch > @after AND k.batch <= @through
), change AS MATERIALIZED (
    SELECT e.account_id, sum(e.amount) AS amount
    FROM (SELECT credit_account_id AS account_id, amount::numeric AS amount FROM moved
          UNION ALL SELECT debit_account_id, -amount::numeric FROM moved) e
    GROUP BY e.account_id
)
SELECT (SELECT count(*) FROM moved)::bigint AS transfers,
       (SELECT count(*) FROM ledger_link k WHERE k.batch > @after AND k.batch <= @through)::bigint AS txs,
       (SELECT count(*) FROM change c FULL JOIN (SELECT d.account_id, d.change FROM ledger_day_account d WHERE d.day = @n) d ON d.account_id = c.account_id
        WHERE c.amount IS DISTINCT FROM d.change)::bigint AS accounts,
       (SELECT count(*) FROM ledger_day_account d
        WHERE d.day = @n AND d.after <> d.change + coalesce((SELECT p.after FROM ledger_day_account p
                                                             WHERE p.account_id = d.account_id AND p.day < d.day ORDER BY p.day DESC LIMIT 1), 0))::bigint AS carried,
       (SELECT count(*) FROM (SELECT a.kind, a.currency, sum(c.amount) AS amount FROM change c JOIN ledger_account a ON a.id = c.account_id
                              GROUP BY a.kind, a.currency) t
        FULL JOIN (SELECT y.kind, y.currency, y.change FROM ledger_day_kind y WHERE y.day = @n) k ON k.kind = t.kind AND k.currency = t.currency
        WHERE t.amount IS DISTINCT FROM k.change)::bigint AS kinds;

-- name: OpenLedgerKindTotals :many
-- The balance of all accounts of a kind: the totals of closed days, and the entries in none.
WITH open AS MATERIALIZED (
    SELECT k.tx_id FROM ledger_link k WHERE k.batch > @through
    UNION ALL SELECT u.tx_id FROM ledger_unlinked u
), moved AS MATERIALIZED (
    SELECT e.account_id, sum(e.amount) AS amount
    FROM (SELECT f.credit_account_id AS account_id, f.amount::numeric AS amount FROM open o JOIN ledger_transfer f ON f.tx_id = o.tx_id
          UNION ALL
          SELECT f.debit_account_id, -f.amount::numeric FROM open o JOIN ledger_transfer f ON f.tx_id = o.tx_id) e
    GROUP BY e.account_id
)
SELECT t.kind::text AS kind, t.currency::text AS currency, sum(t.amount)::text AS amount
FROM (SELECT a.kind, a.currency, m.amount FROM moved m JOIN ledger_account a ON a.id = m.account_id
      UNION ALL
      SELECT d.kind, d.currency, d.change FROM ledger_day_kind d) t
GROUP BY t.kind, t.currency
ORDER BY t.kind, t.currency;

-- name: OpenLedgerMismatches :many
-- scan: lookup
-- As LedgerMismatches, of accounts that are live or moved since the last closed day. The platform's own accounts have no balance.
WITH open AS MATERIALIZED (
    SELECT k.tx_id FROM ledger_link k WHERE k.batch > @through
    UNION ALL SELECT u.tx_id FROM ledger_unlinked u
), moved AS MATERIALIZED (
    SELECT e.account_id, sum(e.amount) AS amount
    FROM (SELECT f.credit_account_id AS account_id, f.amount::numeric AS amount FROM open o JOIN ledger_transfer f ON f.tx_id = o.tx_id
          UNION ALL
          SELECT f.debit_account_id, -f.amount::numeric FROM open o JOIN ledger_transfer f ON f.tx_id = o.tx_id) e
    GROUP BY e.account_id
), looked AS MATERIALIZED (
    SELECT m.account_id, m.amount FROM moved m
    UNION ALL
    SELECT l.id, 0 FROM ledger_account l WHERE l.org_id IS NOT NULL AND l.retired_at IS NULL AND NOT EXISTS (SELECT FROM moved m WHERE m.account_id = l.id)
)
SELECT x.id, x.kind, x.missing, x.cached, x.summed::text AS summed
FROM (SELECT a.id, a.kind, (b.account_id IS NULL)::boolean AS missing, coalesce(b.amount, 0)::bigint AS cached, b.floor,
             (m.amount + coalesce((SELECT p.after FROM ledger_day_account p WHERE p.account_id = a.id ORDER BY p.day DESC LIMIT 1), 0))::numeric AS summed
      FROM looked m
      JOIN ledger_account a ON a.id = m.account_id
      LEFT JOIN ledger_balance b ON b.account_id = m.account_id
      WHERE b.account_id IS NOT NULL OR a.kind = ANY(@cached::text[])) x
WHERE x.missing OR x.cached <> x.summed OR x.cached < x.floor OR x.floor IS NULL AND x.kind = ANY(@floored::text[])
ORDER BY x.id;

-- name: RetiredLedgerMismatches :many
-- As LedgerMismatches, of retired accounts that last moved on a closed day. They are empty.
SELECT a.id, a.kind, coalesce(b.amount, 0)::bigint AS cached, d.after::text AS summed
FROM ledger_day_account d
JOIN ledger_account a ON a.id = d.account_id
LEFT JOIN ledger_balance b ON b.account_id = a.id
WHERE d.day = @n AND a.retired_at IS NOT NULL AND (b.account_id IS NULL OR b.amount <> d.after OR b.amount <> 0)
  AND NOT EXISTS (SELECT FROM ledger_day_account l WHERE l.account_id = d.account_id AND l.day > d.day)
  AND NOT EXISTS (SELECT FROM ledger_transfer f JOIN ledger_link k ON k.tx_id = f.tx_id
                  WHERE (f.debit_account_id = a.id OR f.credit_account_id = a.id) AND k.batch > @through)
  AND NOT EXISTS (SELECT FROM ledger_transfer f JOIN ledger_unlinked u ON u.tx_id = f.tx_id
                  WHERE f.debit_account_id = a.id OR f.credit_account_id = a.id)
ORDER BY a.id;

-- name: OpenLedgerEmptyTxs :one
SELECT count(*) FROM (SELECT k.tx_id FROM ledger_link k WHERE k.batch > @through UNION ALL SELECT u.tx_id FROM ledger_unlinked u) o
WHERE NOT EXISTS (SELECT FROM ledger_transfer t WHERE t.tx_id = o.tx_id);

-- name: OpenLedgerOvercorrected :many
-- As LedgerOvercorrected, of leases with a correction since the last closed day.
WITH open AS (
    SELECT k.tx_id FROM ledger_link k WHERE k.batch > @through
    UNION ALL SELECT u.tx_id FROM ledger_unlinked u
), touched AS MATERIALIZED (
    SELECT DISTINCT u.ref, split_part(u.key, ':', 2) AS lease
    FROM open o JOIN ledger_tx x ON x.id = o.tx_id JOIN ledger_tx u ON u.id = x.corrects
    WHERE u.kind = 'usage'
)
SELECT y.lease::text AS lease, y.given_back::text AS given_back, y.charged::text AS charged
FROM (SELECT c.lease,
             (SELECT coalesce(sum(t.amount), 0) FROM ledger_tx u JOIN ledger_tx x ON x.corrects = u.id JOIN ledger_transfer t ON t.tx_id = x.id
              WHERE u.ref = c.ref AND u.ref <> '' AND u.kind = 'usage' AND split_part(u.key, ':', 2) = c.lease) AS given_back,
             (SELECT coalesce(sum(t.amount), 0) FROM ledger_tx x JOIN ledger_transfer t ON t.tx_id = x.id
              WHERE x.ref = c.ref AND x.ref <> '' AND x.kind = 'usage' AND split_part(x.key, ':', 2) = c.lease) AS charged
      FROM touched c) y
WHERE y.given_back > y.charged
ORDER BY 1;
