-- name: InsertTaxEntry :exec
INSERT INTO tax_entry (key, org_id, kind, ref, country, vat_id, reason, name, ppm, net, tax, currency)
VALUES (@key, @org_id, @kind, @ref, @country, @vat_id, @reason, @name, @ppm, @net, @tax, @currency);

-- name: TaxReport :many
SELECT country, reason, name, ppm, vat_id,
       count(*) FILTER (WHERE kind IN ('topup', 'invoice')) AS sales,
       coalesce(sum(net) FILTER (WHERE net >= 0), 0)::bigint AS sold, coalesce(sum(tax) FILTER (WHERE net >= 0), 0)::bigint AS charged,
       coalesce(-sum(net) FILTER (WHERE net < 0), 0)::bigint AS returned, coalesce(-sum(tax) FILTER (WHERE net < 0), 0)::bigint AS given_back
FROM tax_entry
WHERE currency = @currency AND created_at >= @from_time AND created_at < @to_time
GROUP BY country, reason, name, ppm, vat_id
ORDER BY country, reason, ppm, vat_id;

-- name: TaxBooked :one
-- scan: lookup
-- All tax less what was paid to tax offices, by the book, and by the ledger: the totals of closed days, and what is in none. A transfer has an
-- id of its time, give or take the clocks of servers, and is in the chain within seconds.
WITH tax AS (
    SELECT d.after, ((d.day + 1)::timestamp AT TIME ZONE 'UTC')::timestamptz AS until_at FROM tax_day d WHERE d.currency = @currency ORDER BY d.day DESC LIMIT 1
), closed AS (
    SELECT y.through_batch, (lpad(to_hex((extract(epoch FROM b.made_at - interval '2 days') * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid AS from_id
    FROM ledger_day y JOIN ledger_batch b ON b.n = y.through_batch ORDER BY y.n DESC LIMIT 1
), payable AS (
    SELECT a.id FROM ledger_account a WHERE a.kind = 'tax_payable' AND a.currency = @currency
), moved AS (
    SELECT f.tx_id, cast(f.amount AS numeric) AS amount FROM payable p JOIN ledger_transfer f ON f.credit_account_id = p.id
    WHERE f.id >= coalesce((SELECT c.from_id FROM closed c), '00000000-0000-0000-0000-000000000000')
    UNION ALL
    SELECT f.tx_id, cast(-f.amount AS numeric) FROM payable p JOIN ledger_transfer f ON f.debit_account_id = p.id
    WHERE f.id >= coalesce((SELECT c.from_id FROM closed c), '00000000-0000-0000-0000-000000000000')
)
SELECT (coalesce((SELECT x.after FROM tax x), 0)
        + (SELECT coalesce(sum(t.tax), 0) FROM tax_entry t
           WHERE t.currency = @currency AND t.created_at >= coalesce((SELECT x.until_at FROM tax x), '-infinity'))
        - (SELECT coalesce(sum(m.amount), 0) FROM tax_remittance m
           WHERE m.currency = @currency AND m.created_at >= coalesce((SELECT x.until_at FROM tax x), '-infinity')))::bigint AS book,
       (coalesce((SELECT p.after FROM payable a JOIN ledger_day_account p ON p.account_id = a.id ORDER BY p.day DESC LIMIT 1), 0)
        + (SELECT coalesce(sum(m.amount), 0) FROM moved m
           WHERE NOT EXISTS (SELECT FROM closed c JOIN ledger_link k ON k.tx_id = m.tx_id WHERE k.batch <= c.through_batch)))::bigint AS payable;

-- name: CloseTaxDays :execrows
-- scan: done
-- Freezes the totals of the first open days that have been over for a day, of at most 31 days at a time. Run by two replicas at once, both write the
-- same.
WITH last AS (
    SELECT c.currency, coalesce(d.after, 0) AS after, coalesce((d.day + 1)::timestamp AT TIME ZONE 'UTC', '-infinity') AS from_time
    FROM (SELECT DISTINCT a.currency FROM ledger_account a WHERE a.kind IN ('stripe_clearing', 'tax_payable')) c
    LEFT JOIN LATERAL (SELECT y.day, y.after FROM tax_day y WHERE y.currency = c.currency ORDER BY y.day DESC LIMIT 1) d ON true
), bounds AS (
    SELECT l.currency, l.after, l.from_time,
           least(date_trunc('day', statement_timestamp(), 'UTC') - interval '1 day', date_trunc('day', f.first_at, 'UTC') + interval '31 days') AS to_time
    FROM last l
    CROSS JOIN LATERAL (SELECT least((SELECT min(t.created_at) FROM tax_entry t WHERE t.created_at >= l.from_time AND t.currency = l.currency),
                                     (SELECT min(m.created_at) FROM tax_remittance m WHERE m.created_at >= l.from_time AND m.currency = l.currency)) AS first_at) f
    WHERE f.first_at IS NOT NULL
), moved AS (
    SELECT b.currency, b.after, t.created_at, t.tax AS amount FROM bounds b
    JOIN tax_entry t ON t.currency = b.currency AND t.created_at >= b.from_time AND t.created_at < b.to_time
    UNION ALL
    SELECT b.currency, b.after, m.created_at, -m.amount FROM bounds b
    JOIN tax_remittance m ON m.currency = b.currency AND m.created_at >= b.from_time AND m.created_at < b.to_time
)
INSERT INTO tax_day (currency, day, change, after)
SELECT x.currency, x.day, x.change, x.before + sum(x.change) OVER (PARTITION BY x.currency ORDER BY x.day)
FROM (SELECT m.currency, (m.created_at AT TIME ZONE 'UTC')::date AS day, max(m.after) AS before, sum(m.amount)::bigint AS change
      FROM moved m GROUP BY 1, 2) x
ON CONFLICT DO NOTHING;

-- name: TaxDayToCheck :one
-- scan: lookup
-- The closed day that was compared with the tax book longest ago.
SELECT currency, day, change, after, checked_at FROM tax_day ORDER BY checked_at, currency, day LIMIT 1;

-- name: TaxDaySums :one
-- scan: lookup
-- What the time of a day adds up to, and what there was before the day.
SELECT ((SELECT coalesce(sum(t.tax), 0) FROM tax_entry t WHERE t.currency = @currency AND t.created_at >= @from_time AND t.created_at < @to_time)
        - (SELECT coalesce(sum(m.amount), 0) FROM tax_remittance m
           WHERE m.currency = @currency AND m.created_at >= @from_time AND m.created_at < @to_time))::bigint AS change,
       coalesce((SELECT d.after FROM tax_day d WHERE d.currency = @currency AND d.day < @day ORDER BY d.day DESC LIMIT 1), 0)::bigint AS before;

-- name: TaxDayChecked :exec
UPDATE tax_day SET checked_at = clock_timestamp(), problem = @problem WHERE currency = @currency AND day = @day;

-- name: LockTaxRemittances :exec
-- Until the end of the transaction: what is paid to the office of a country is counted one after the other.
SELECT pg_advisory_xact_lock(hashtext('tax_remittance'), hashtext(@country::text || @currency::text));

-- name: InsertTaxRemittance :one
INSERT INTO tax_remittance (country, period, from_time, to_time, amount, currency, reason, user_id)
VALUES (@country, @period, @from_time, @to_time, @amount, @currency, @reason, @user_id)
RETURNING id;

-- name: TaxRemittedByCountry :many
-- What was paid for periods that have time in common with this one.
SELECT country, sum(amount)::bigint AS amount
FROM tax_remittance
WHERE currency = @currency AND from_time < @to_time AND to_time > @from_time
GROUP BY country
ORDER BY country;
