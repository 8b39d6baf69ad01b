-- name: StripeCustomer :one
SELECT org_id, customer_id, payment_method FROM stripe_customer WHERE org_id = $1;

-- name: InsertStripeCustomer :exec
-- The first one made stands.
INSERT INTO stripe_customer (org_id, customer_id) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: SetDefaultMethod :execrows
UPDATE stripe_customer SET payment_method = @method WHERE org_id = @org_id AND payment_method <> @method;

-- name: SetFirstMethod :execrows
UPDATE stripe_customer SET payment_method = @method WHERE org_id = @org_id AND payment_method = '';

-- name: ReplaceDefaultMethod :execrows
-- After a card was removed, the newest of the others is the default.
UPDATE stripe_customer c
SET payment_method = coalesce((SELECT k.method_id FROM payment_card k WHERE k.org_id = c.org_id AND k.removed_at IS NULL
                               ORDER BY k.id DESC LIMIT 1), '')
WHERE c.org_id = @org_id AND c.payment_method = @removed;

-- name: InsertTopup :exec
INSERT INTO topup (id, org_id, user_id, amount, currency, automatic, tax, tax_ppm, tax_name, tax_reason, tax_country, tax_vat_id, state)
VALUES (@id, @org_id, @user_id, @amount, @currency, @automatic, @tax, @tax_ppm, @tax_name, @tax_reason, @tax_country, @tax_vat_id, 'pending');

-- name: Topup :one
SELECT id, org_id, user_id, amount, currency, state, payment_intent_id, checkout_url, failure, created_at, settled_at, action_url,
       receipt_url, automatic, tax, tax_ppm, tax_name, tax_reason, tax_country, tax_vat_id, poll_at
FROM topup WHERE id = $1;

-- name: TopupForUpdate :one
SELECT id, org_id, user_id, amount, currency, state, payment_intent_id, checkout_url, failure, created_at, settled_at, action_url,
       receipt_url, automatic, tax, tax_ppm, tax_name, tax_reason, tax_country, tax_vat_id, poll_at
FROM topup WHERE id = $1
FOR UPDATE;

-- name: ListTopups :many
SELECT id, org_id, user_id, amount, currency, state, payment_intent_id, checkout_url, failure, created_at, settled_at, action_url,
       receipt_url, automatic, tax, tax_ppm, tax_name, tax_reason, tax_country, tax_vat_id, poll_at
FROM topup
WHERE org_id = @org_id AND (@before::uuid = '00000000-0000-0000-0000-000000000000' OR id < @before::uuid)
ORDER BY id DESC
LIMIT @max_rows;

-- name: SetTopupPayment :exec
UPDATE topup SET payment_intent_id = $2 WHERE id = $1 AND payment_intent_id IS DISTINCT FROM $2;

-- name: SetTopupCheckout :exec
UPDATE topup SET checkout_url = $2 WHERE id = $1;

-- name: SetTopupAction :exec
UPDATE topup SET action_url = @action_url WHERE id = @id AND state = 'pending' AND action_url <> @action_url;

-- name: SetTopupReceipt :exec
UPDATE topup SET receipt_url = @receipt_url WHERE id = @id;

-- name: SettleTopup :exec
UPDATE topup SET state = @state, failure = @failure, checkout_url = '', action_url = '', settled_at = clock_timestamp() WHERE id = @id AND state <> 'succeeded';

-- name: ClaimPendingTopups :many
-- scan: moves poll_at
-- Claims top-ups to read from Stripe: after a minute at first, less often the longer one is pending, hourly at the end.
UPDATE topup t
SET poll_at = clock_timestamp() + least(interval '1 hour', greatest(interval '1 minute', (clock_timestamp() - t.created_at) / 4))
WHERE t.id IN (SELECT d.id FROM topup d
               WHERE d.state = 'pending' AND d.created_at < statement_timestamp() - make_interval(secs => @age_s::float8) AND d.poll_at <= statement_timestamp()
               ORDER BY d.poll_at, d.id LIMIT @max_rows FOR UPDATE SKIP LOCKED)
RETURNING t.id;

-- name: PostponeTopupPoll :exec
UPDATE topup SET poll_at = clock_timestamp() + make_interval(secs => @wait_s::float8) WHERE id = @id AND state = 'pending';

-- name: PendingTopupsOfOrg :many
SELECT id FROM topup WHERE org_id = $1 AND state = 'pending' ORDER BY id DESC LIMIT $2;
