-- Payments and refunds that Stripe made and the database lost.

-- name: AdoptedOrg :one
SELECT o.id FROM org o WHERE o.id = @id;

-- name: OrgOfCustomer :one
SELECT org_id FROM stripe_customer WHERE customer_id = @customer_id;

-- name: LostInRestore :one
-- Whether the commits of a moment were lost by a restore that was adopted. Clocks may differ by minutes.
SELECT EXISTS (SELECT FROM restore r WHERE @at::timestamptz BETWEEN r.backup_at - interval '10 minutes' AND r.adopted_at + interval '10 minutes');

-- name: DisputeState :one
SELECT state FROM dispute WHERE id = @id;
