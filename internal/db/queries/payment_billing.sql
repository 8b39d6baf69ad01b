-- name: OrgOfStripeCustomer :one
SELECT org_id FROM stripe_customer WHERE customer_id = $1;

-- name: BillingContact :one
-- scan: lookup
-- Whom Stripe writes to: the owner who came first.
SELECT o.name, coalesce((SELECT u.email FROM membership m JOIN app_user u ON u.id = m.user_id
                         WHERE m.org_id = o.id AND m.role = 'owner' ORDER BY m.created_at, m.user_id LIMIT 1), '')::text AS email
FROM org o WHERE o.id = $1;
