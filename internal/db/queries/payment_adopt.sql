-- Payments and refunds that Stripe made and the database lost.

-- name: AdoptedOrg :one
SELECT o.id FROM org o WHERE o.id = @id;

-- name: OrgOfCustomer :one
SELECT org_id FROM stripe_customer WHERE customer_id = @customer_id;

-- name: InsertDoneOutbox :exec
INSERT INTO stripe_outbox (id, kind, ref, params, idem_key, state, result_id, done_at)
VALUES (@id, @kind, @ref, @params, @idem_key, 'done', @result_id, clock_timestamp())
ON CONFLICT (idem_key) DO NOTHING;

-- name: LostInRestore :one
-- Whether the commits of a moment were lost by a restore that was adopted. Clocks may differ by minutes.
SELECT EXISTS (SELECT FROM restore r WHERE @at::timestamptz BETWEEN r.backup_at - interval '10 minutes' AND r.adopted_at + interval '10 minutes');

-- name: DisputeState :one
SELECT state FROM dispute WHERE id = @id;
