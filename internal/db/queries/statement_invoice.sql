-- name: IssuedInvoice :one
SELECT content FROM invoice WHERE org_id = @org_id AND month = @month AND currency = @currency;

-- name: IssueInvoice :exec
-- The first one stands.
INSERT INTO invoice (org_id, month, currency, number, content) VALUES (@org_id, @month, @currency, @number, @content)
ON CONFLICT DO NOTHING;

-- name: OrgsToInvoice :many
-- Renters of a month, who stored then, and who paid in, whose invoice is not issued yet.
SELECT o.id, o.name
FROM org o
WHERE (EXISTS (SELECT FROM lease l WHERE l.renter_org_id = o.id AND l.created_at < @to_time::timestamptz
               AND (l.settled_at IS NULL OR l.ended_at IS NULL OR l.ended_at >= @from_time::timestamptz))
       OR EXISTS (SELECT FROM data_domain d JOIN data_meter m ON m.domain_id = d.id WHERE d.org_id = o.id AND m.steps > 0
               AND d.created_at < @to_time::timestamptz AND (d.erased_at IS NULL OR d.erased_at >= @from_time::timestamptz))
       OR EXISTS (SELECT FROM tax_entry t WHERE t.org_id = o.id AND t.created_at >= @from_time::timestamptz AND t.created_at < @to_time::timestamptz))
  AND NOT EXISTS (SELECT FROM invoice i WHERE i.org_id = o.id AND i.month = @month AND i.currency = @currency)
ORDER BY o.id;

-- name: TaxEntriesOfOrg :many
-- What an org paid in and was given back in a period, with the tax on it, and the number of its receipt or credit note.
SELECT t.id, t.key, t.kind, t.ref, t.country, t.vat_id, t.reason, t.name, t.ppm, t.net, t.tax, t.created_at,
       coalesce(d.series, '')::text AS series, coalesce(d.year, 0)::integer AS year, coalesce(d.number, 0)::bigint AS number
FROM tax_entry t
LEFT JOIN document d ON d.key = CASE t.kind WHEN 'topup' THEN 'receipt:' || t.ref ELSE 'credit_note:' || t.key END
WHERE t.org_id = @org_id AND t.currency = @currency AND t.created_at >= @from_time AND t.created_at < @to_time
ORDER BY t.id;
