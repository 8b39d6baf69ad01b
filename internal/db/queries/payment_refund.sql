-- name: RefundableTopups :many
-- Paid top-ups of an org with what is left of each, newest first. Locked, so that two requests do not give back the same.
SELECT t.id, t.amount, t.tax, t.payment_intent_id,
       (SELECT coalesce(sum(r.amount), 0) FROM refund r WHERE r.topup_id = t.id AND r.state <> 'failed')::bigint AS refunded,
       (SELECT coalesce(sum(r.tax), 0) FROM refund r WHERE r.topup_id = t.id AND r.state <> 'failed')::bigint AS tax_refunded,
       EXISTS (SELECT FROM refund r WHERE r.topup_id = t.id AND r.state <> 'failed'
               AND r.created_at > statement_timestamp() - interval '30 days') AS recent,
       EXISTS (SELECT FROM dispute d WHERE d.topup_id = t.id) AS disputed
FROM topup t
WHERE t.org_id = @org_id AND t.state = 'succeeded' AND t.currency = @currency AND t.payment_intent_id IS NOT NULL
ORDER BY t.id DESC;

-- name: LockTopupsOfOrg :many
SELECT id FROM topup WHERE org_id = $1 AND state = 'succeeded' ORDER BY id FOR UPDATE;

-- name: InsertRefund :exec
INSERT INTO refund (id, org_id, topup_id, user_id, amount, currency, tax, state) VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending');

-- name: RefundForUpdate :one
SELECT id, org_id, topup_id, user_id, amount, currency, state, refund_id, failure, created_at, settled_at, tax, poll_at
FROM refund WHERE id = $1 FOR UPDATE;

-- name: ListRefunds :many
SELECT id, org_id, topup_id, user_id, amount, currency, state, refund_id, failure, created_at, settled_at, tax, poll_at
FROM refund WHERE org_id = $1 ORDER BY id DESC LIMIT $2;

-- name: SettleRefund :exec
UPDATE refund SET state = @state, refund_id = coalesce(sqlc.narg(refund_id), refund_id), failure = @failure, settled_at = clock_timestamp()
WHERE id = @id;

-- name: TopupOfPayment :one
SELECT id, org_id, user_id, amount, currency, state, payment_intent_id, checkout_url, failure, created_at, settled_at, action_url,
       receipt_url, automatic, tax, tax_ppm, tax_name, tax_reason, tax_country, tax_vat_id, poll_at
FROM topup WHERE payment_intent_id = $1;

-- name: GoneBack :one
-- What of a payment has gone back, by refunds and by lost disputes other than one; and what is on its way and may yet
-- fail. Amounts are without tax.
SELECT (r.amount + d.amount)::bigint AS amount, (r.tax + d.tax)::bigint AS tax, r.waiting::bigint AS waiting, r.waiting_tax::bigint AS waiting_tax
FROM (SELECT coalesce(sum(f.amount) FILTER (WHERE f.state = 'succeeded'), 0) AS amount, coalesce(sum(f.tax) FILTER (WHERE f.state = 'succeeded'), 0) AS tax,
             coalesce(sum(f.amount) FILTER (WHERE f.state = 'pending'), 0) AS waiting, coalesce(sum(f.tax) FILTER (WHERE f.state = 'pending'), 0) AS waiting_tax
      FROM refund f WHERE f.topup_id = @topup_id) r,
     (SELECT coalesce(sum(l.amount - l.tax), 0) AS amount, coalesce(sum(l.tax), 0) AS tax
      FROM dispute l WHERE l.topup_id = @topup_id AND l.state = 'lost' AND l.id <> @dispute_id) d;

-- name: InsertDispute :execrows
INSERT INTO dispute (id, org_id, topup_id, amount, held, currency, reason, state, paid_at, tax, invoice_id, kind, held_bond)
VALUES ($1, $2, $3, $4, $5, $6, $7, 'open', $8, $9, $10, $11, $12)
ON CONFLICT (id) DO NOTHING;

-- name: DisputeForUpdate :one
SELECT id, org_id, topup_id, amount, held, currency, reason, state, paid_at, created_at, closed_at, tax, invoice_id, kind, debt, collect_at, held_bond FROM dispute WHERE id = $1 FOR UPDATE;

-- name: InvoiceRefunded :one
-- What refunds have given back of an invoice's payment, with tax, and how much of that was tax.
SELECT coalesce(sum(amount), 0)::bigint AS amount, coalesce(sum(tax), 0)::bigint AS tax
FROM dispute WHERE invoice_id = $1 AND kind = 'refund' AND state <> 'returned';

-- name: CloseDispute :exec
UPDATE dispute SET state = @state, tax = @tax, closed_at = clock_timestamp() WHERE id = @id;

-- name: InsertPromoCode :execrows
INSERT INTO promo_code (code, amount, currency, max_uses, expires_at, user_id) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (code) DO NOTHING;

-- name: UsePromoCode :one
UPDATE promo_code SET uses = uses + 1
WHERE code = $1 AND uses < max_uses AND (expires_at IS NULL OR expires_at > clock_timestamp())
RETURNING amount, currency;

-- name: InsertPromoRedemption :execrows
INSERT INTO promo_redemption (code, org_id, user_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- name: PromoUsedInCircle :one
-- Whether an organisation of an org's circle, or the user in another one, has used a code.
SELECT EXISTS (SELECT FROM promo_redemption r
               WHERE r.code = @code AND (r.user_id = @user_id
                 OR r.org_id = ANY (ARRAY(SELECT org_circle(@org_id, statement_timestamp() - interval '30 days')))));

-- name: ListPromoCodes :many
-- scan: page
SELECT code, amount, currency, max_uses, uses, expires_at, user_id, created_at FROM promo_code ORDER BY created_at DESC LIMIT $1;

-- name: PromoCode :one
SELECT * FROM promo_code WHERE code = $1;

-- name: EndPromoCode :one
UPDATE promo_code SET expires_at = clock_timestamp()
WHERE code = $1 AND (expires_at IS NULL OR expires_at > clock_timestamp())
RETURNING *;

-- name: PromoRedemptions :many
-- scan: page
SELECT r.code, r.org_id, o.name AS org_name, c.amount, c.currency, r.created_at
FROM promo_redemption r JOIN promo_code c ON c.code = r.code JOIN org o ON o.id = r.org_id
WHERE (@code::text = '' OR r.code = @code::text) AND (sqlc.narg(org_id)::uuid IS NULL OR r.org_id = sqlc.narg(org_id)::uuid)
  AND (@after_code::text = '' OR (r.created_at, r.code, r.org_id)
       < (SELECT x.created_at, x.code, x.org_id FROM promo_redemption x WHERE x.code = @after_code::text AND x.org_id = @after_org::uuid))
ORDER BY r.created_at DESC, r.code DESC, r.org_id DESC
LIMIT @max_rows;

-- name: CountPromoAttempt :one
INSERT INTO promo_attempt (org_id, attempts, window_start) VALUES ($1, 1, clock_timestamp())
ON CONFLICT (org_id) DO UPDATE SET
    attempts = CASE WHEN promo_attempt.window_start < statement_timestamp() - interval '1 hour' THEN 1 ELSE promo_attempt.attempts + 1 END,
    window_start = CASE WHEN promo_attempt.window_start < statement_timestamp() - interval '1 hour' THEN clock_timestamp() ELSE promo_attempt.window_start END
RETURNING attempts;

-- name: RefundsOfCircle :one
-- What the other organisations of an org's circle were given back within 30 days, of how many payments, and since when. Without tax.
SELECT coalesce(sum(f.amount), 0)::bigint AS amount, count(DISTINCT f.topup_id) AS payments,
       coalesce(min(f.created_at), statement_timestamp())::timestamptz AS oldest
FROM refund f
WHERE f.currency = @currency AND f.state <> 'failed' AND f.created_at > statement_timestamp() - interval '30 days'
  AND f.org_id <> @org_id AND f.org_id = ANY (ARRAY(SELECT org_circle(@org_id, statement_timestamp() - interval '30 days')));

-- name: RefundHistory :one
-- What bounds the refunds of an org: what it was given back within 30 days, of how many payments and since when; what it was
-- given back ever; what it has used ever, which is what it paid in less what went back and what is still its own; and what
-- staff allowed it within 30 days. Amounts are without tax.
SELECT r.recent::bigint AS recent, r.payments::bigint AS payments, r.oldest, r.ever::bigint AS ever,
       greatest(0, p.paid - r.ever - l.lost - b.kept - d.bond)::bigint AS used, a.allowed::bigint AS allowed
FROM (SELECT coalesce(sum(f.amount), 0) AS ever,
             coalesce(sum(f.amount) FILTER (WHERE f.created_at > statement_timestamp() - interval '30 days'), 0) AS recent,
             count(DISTINCT f.topup_id) FILTER (WHERE f.created_at > statement_timestamp() - interval '30 days') AS payments,
             coalesce(min(f.created_at) FILTER (WHERE f.created_at > statement_timestamp() - interval '30 days'), statement_timestamp())::timestamptz AS oldest
      FROM refund f WHERE f.org_id = @org_id AND f.currency = @currency AND f.state <> 'failed') r,
     (SELECT coalesce(sum(t.amount), 0) AS paid FROM topup t WHERE t.org_id = @org_id AND t.currency = @currency AND t.state = 'succeeded') p,
     (SELECT coalesce(sum(x.amount - x.tax), 0) AS lost FROM dispute x
      WHERE x.org_id = @org_id AND x.currency = @currency AND x.topup_id IS NOT NULL AND x.kind = 'dispute' AND x.state = 'lost') l,
     (SELECT coalesce(sum(greatest(0, y.amount)), 0) AS kept FROM ledger_account c JOIN ledger_balance y ON y.account_id = c.id
      WHERE c.org_id = @org_id AND c.currency = @currency AND c.retired_at IS NULL
        AND c.kind IN ('renter_wallet', 'renter_hold', 'dispute_hold')) b,
     (SELECT coalesce(sum(v.amount), 0) AS bond FROM bond_deposited v WHERE v.org_id = @org_id AND v.currency = @currency) d,
     (SELECT coalesce(sum(w.amount), 0) AS allowed FROM refund_allowance w
      WHERE w.org_id = @org_id AND w.currency = @currency AND w.created_at > statement_timestamp() - interval '30 days') a;

-- name: InsertRefundAllowance :execrows
-- No row: there is no such org.
INSERT INTO refund_allowance (org_id, amount, currency, user_id, reason)
SELECT o.id, @amount, @currency, @user_id, @reason FROM org o WHERE o.id = @org_id;
