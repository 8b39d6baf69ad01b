-- name: IssueReceipt :execrows
-- The first one stands.
INSERT INTO receipt (topup_id, content) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: Receipt :one
SELECT content, issued_at FROM receipt WHERE topup_id = $1;

-- name: ReturnedOfTopup :many
-- What went back of a payment, or is on its way: refunds, and what its card's bank took in a dispute that was lost. Amounts are
-- without tax.
SELECT r.created_at AS at, 'refund'::text AS kind, r.id::text AS id, r.amount, r.tax, r.state
FROM refund r WHERE r.topup_id = @topup_id AND r.state <> 'failed'
UNION ALL
SELECT coalesce(d.closed_at, d.created_at), 'dispute_lost', d.id, d.amount - d.tax, d.tax, 'succeeded'
FROM dispute d WHERE d.topup_id = @topup_id AND d.state = 'lost'
ORDER BY 1, 3;

-- name: Receipts :many
SELECT topup_id, content FROM receipt WHERE topup_id = ANY (@topups::uuid[]);
