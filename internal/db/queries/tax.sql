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
-- All tax less what was paid to tax offices, by the book, and by the ledger.
SELECT ((SELECT coalesce(sum(t.tax), 0) FROM tax_entry t WHERE t.currency = @currency)
        - (SELECT coalesce(sum(m.amount), 0) FROM tax_remittance m WHERE m.currency = @currency))::bigint AS book,
       (SELECT coalesce(sum(e.amount), 0) FROM ledger_entry e JOIN ledger_account a ON a.id = e.account_id
        WHERE a.kind = 'tax_payable' AND a.currency = @currency)::bigint AS payable;

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
