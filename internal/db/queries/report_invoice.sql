-- name: IssuedInvoice :one
SELECT content FROM invoice WHERE org_id = @org_id AND month = @month AND currency = @currency;

-- name: IssueInvoice :exec
-- The first one stands.
INSERT INTO invoice (org_id, month, currency, number, content) VALUES (@org_id, @month, @currency, @number, @content)
ON CONFLICT DO NOTHING;

-- name: OrgsToInvoice :many
-- Renters of a month whose invoice is not issued yet.
SELECT o.id, o.name
FROM org o
WHERE EXISTS (SELECT FROM lease l WHERE l.renter_org_id = o.id AND l.created_at < @to_time::timestamptz
              AND (l.settled_at IS NULL OR l.ended_at IS NULL OR l.ended_at >= @from_time::timestamptz))
  AND NOT EXISTS (SELECT FROM invoice i WHERE i.org_id = o.id AND i.month = @month AND i.currency = @currency)
ORDER BY o.id;
