-- name: AddPostpaidOrg :exec
-- So that there is a row to lock.
INSERT INTO postpaid_org (org_id, currency, state, credit_limit, reason, changed_by)
SELECT o.id, @currency, 'off', 0, '', @changed_by FROM org o WHERE o.id = @org_id
ON CONFLICT (org_id) DO NOTHING;

-- name: PostpaidOrgForUpdate :one
SELECT org_id, currency, state, credit_limit, stopped, reason, changed_by, changed_at, created_at, charges, charged, charged_at, subscription, period_start,
       period_end, unsubscribed_at, asked_at, charge_at
FROM postpaid_org WHERE org_id = $1 FOR UPDATE;

-- name: PostpaidOrg :one
SELECT org_id, currency, state, credit_limit, stopped, reason, changed_by, changed_at, created_at, charges, charged, charged_at, subscription, period_start,
       period_end, unsubscribed_at, asked_at, charge_at
FROM postpaid_org WHERE org_id = $1;

-- name: SetPostpaidTerms :exec
UPDATE postpaid_org SET state = @state, credit_limit = @credit_limit, reason = @reason, changed_by = @changed_by, changed_at = clock_timestamp()
WHERE org_id = @org_id;

-- name: ListPostpaidOrgs :many
SELECT p.org_id, o.name, p.currency, p.state, p.credit_limit, p.stopped, p.reason, p.changed_at,
       (SELECT coalesce(sum(w.amount), 0) FROM postpaid_writeoff w WHERE w.org_id = p.org_id AND w.state = 'booked')::bigint AS written_off
FROM postpaid_org p JOIN org o ON o.id = p.org_id
WHERE p.org_id > @after::uuid AND (p.changed_at > p.created_at OR p.state <> 'off')
ORDER BY p.org_id
LIMIT @max_rows;

-- name: ClaimPostpaidCharges :many
-- scan: moves charge_at
-- Takes orgs that were not charged in this hour. One whose charge fails comes again later, behind the others.
UPDATE postpaid_org u SET charge_at = clock_timestamp() + interval '1 minute'
WHERE u.org_id IN (
    SELECT p.org_id FROM postpaid_org p
    WHERE p.state <> 'off' AND (p.charged_at IS NULL OR p.charged_at < date_trunc('hour', clock_timestamp())) AND p.charge_at <= statement_timestamp()
    ORDER BY p.charge_at, p.org_id
    LIMIT $1
    FOR UPDATE SKIP LOCKED)
RETURNING u.org_id;

-- name: PostponePostpaidCharge :exec
UPDATE postpaid_org SET charge_at = clock_timestamp() + make_interval(secs => @wait_s::float8) WHERE org_id = @org_id;

-- name: InsertPostpaidCharge :exec
INSERT INTO postpaid_charge (org_id, n, at, amount, charged, micro, transfer_id) VALUES ($1, $2, $3, $4, $5, $6, $7);

-- name: SetPostpaidCharged :exec
UPDATE postpaid_org SET charges = @charges, charged = @charged, charged_at = @at::timestamptz, charge_at = 'epoch' WHERE org_id = @org_id;

-- name: PostpaidChargedBefore :one
SELECT coalesce(max(charged), 0)::bigint AS charged FROM postpaid_charge WHERE org_id = @org_id AND at < @before;

-- name: SetPostpaidSubscription :exec
UPDATE postpaid_org SET subscription = sqlc.narg(subscription), period_start = sqlc.narg(period_start), period_end = sqlc.narg(period_end) WHERE org_id = @org_id;

-- name: SetPostpaidUnsubscribed :exec
UPDATE postpaid_org SET unsubscribed_at = sqlc.narg(at) WHERE org_id = @org_id;

-- name: SetPostpaidState :exec
UPDATE postpaid_org SET state = @state, stopped = @stopped WHERE org_id = @org_id;

-- name: PostpaidInvoice :one
SELECT id, org_id, currency, subscription, number, state, period_start, period_end, charged, due, total, metered, paid, attempts, url, due_at, made_at, seen_at,
       tax, tax_base, tax_ppm, tax_name, tax_reason, tax_country, tax_vat_id
FROM postpaid_invoice WHERE id = $1;

-- name: ListPostpaidInvoices :many
-- Newest period first.
SELECT id, org_id, currency, subscription, number, state, period_start, period_end, charged, due, total, metered, paid, attempts, url, due_at, made_at, seen_at,
       tax, tax_base, tax_ppm, tax_name, tax_reason, tax_country, tax_vat_id
FROM postpaid_invoice
WHERE org_id = @org_id
ORDER BY period_end DESC, period_start DESC, id DESC
LIMIT @max_rows;

-- name: SavePostpaidInvoice :exec
INSERT INTO postpaid_invoice (id, org_id, currency, subscription, number, state, period_start, period_end, charged, due, total, metered, paid, attempts, url, due_at, made_at,
    tax, tax_base, tax_ppm, tax_name, tax_reason, tax_country, tax_vat_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)
ON CONFLICT (id) DO UPDATE SET number = excluded.number, state = excluded.state, charged = excluded.charged, due = excluded.due, total = excluded.total,
    metered = excluded.metered, paid = excluded.paid, attempts = excluded.attempts, url = excluded.url, due_at = excluded.due_at, seen_at = clock_timestamp(),
    tax = excluded.tax, tax_base = excluded.tax_base, tax_ppm = excluded.tax_ppm, tax_name = excluded.tax_name, tax_reason = excluded.tax_reason,
    tax_country = excluded.tax_country, tax_vat_id = excluded.tax_vat_id;

-- name: PostpaidInvoicedBefore :one
-- Cents of the invoices of earlier periods without tax, and how much of that was taxed: drafts count as what they are to be. What
-- was given up is not taxed any more. (The last period of a subscription that ends in the second in which it was renewed has
-- the end of the one before: Stripe's times are whole seconds.)
SELECT coalesce(sum(CASE WHEN i.state = 'draft' THEN i.due ELSE i.total - i.tax END), 0)::bigint AS net,
       coalesce(sum(CASE WHEN i.state = 'draft' AND i.tax_reason = '' THEN i.due WHEN w.state = 'booked' AND NOT w.disputed THEN greatest(i.tax_base, i.total - i.tax)
                         ELSE i.tax_base END), 0)::bigint AS taxed
FROM postpaid_invoice i LEFT JOIN postpaid_writeoff w ON w.invoice_id = i.id
WHERE i.org_id = @org_id AND i.state <> 'void' AND (i.period_end, i.period_start, i.id) < (@period_end::timestamptz, @period_start::timestamptz, @id::text);

-- name: PostpaidUnpaid :many
-- Invoices that the card did not pay, that were given up, or of whose payment a lost dispute was.
SELECT id, number, total FROM postpaid_invoice i
WHERE i.org_id = $1 AND (i.state = 'uncollectible' OR i.state = 'open' AND i.attempts > 0
      OR EXISTS (SELECT FROM postpaid_writeoff w WHERE w.invoice_id = i.id AND w.state = 'booked' AND w.disputed))
ORDER BY period_end, period_start, id;

-- name: PostpaidUnfinished :one
-- Invoices of which something is to come. Of one that was written off nothing is expected.
SELECT count(*) FROM postpaid_invoice i
WHERE i.org_id = $1 AND (i.state IN ('draft', 'open') OR i.state = 'uncollectible'
      AND NOT EXISTS (SELECT FROM postpaid_writeoff w WHERE w.invoice_id = i.id AND w.state = 'booked'));

-- name: AskPostpaidWriteOff :one
-- A decision that Stripe refused, or that a payment overtook, may be taken again.
INSERT INTO postpaid_writeoff (invoice_id, org_id, state, reason, user_id) VALUES (@invoice_id, @org_id, 'asked', @reason, @user_id)
ON CONFLICT (invoice_id) DO UPDATE SET state = 'asked', asked = postpaid_writeoff.asked + 1, reason = excluded.reason, user_id = excluded.user_id,
    decided_at = clock_timestamp(), failure = ''
RETURNING invoice_id, org_id, state, asked, reason, user_id, decided_at, failure, amount, tax, tax_base, booked_at, closed_at, disputed;

-- name: PostpaidWriteOff :one
SELECT invoice_id, org_id, state, asked, reason, user_id, decided_at, failure, amount, tax, tax_base, booked_at, closed_at, disputed
FROM postpaid_writeoff WHERE invoice_id = $1;

-- name: ListPostpaidWriteOffs :many
SELECT invoice_id, org_id, state, asked, reason, user_id, decided_at, failure, amount, tax, tax_base, booked_at, closed_at, disputed
FROM postpaid_writeoff WHERE org_id = $1;

-- name: BookPostpaidWriteOff :exec
UPDATE postpaid_writeoff SET state = 'booked', amount = @amount, tax = @tax, tax_base = @tax_base, booked_at = clock_timestamp() WHERE invoice_id = @invoice_id;

-- name: PostpaidLost :many
-- What the banks took of invoices' payments in lost disputes and did not give again, less what was set aside and paid it, and what
-- was paid by bank since.
SELECT d.invoice_id, (sum(m.amount) - sum(d.held) - max(b.settled))::bigint AS unpaid, max(b.amount)::bigint AS banked
FROM dispute d
CROSS JOIN LATERAL (
    SELECT coalesce(sum(y.amount), 0) AS amount, coalesce(sum(y.amount + y.waived), 0) AS settled
    FROM postpaid_bank_payment y WHERE y.invoice_id = d.invoice_id) b
CROSS JOIN LATERAL (
    SELECT coalesce(sum(CASE WHEN a.kind = 'renter_receivable' THEN f.amount ELSE -f.amount END), 0) AS amount
    FROM ledger_tx x
    JOIN ledger_transfer f ON f.tx_id = x.id
    JOIN ledger_account a ON a.id = f.debit_account_id
    WHERE x.ref = @ref AND x.kind = 'dispute_funds' AND x.memo = d.id) m
WHERE d.org_id = @org_id AND d.kind = 'dispute' AND d.state = 'lost' AND d.invoice_id <> ''
GROUP BY d.invoice_id;

-- name: BookPostpaidLost :one
-- What a dispute took, whatever was decided on the invoice before; amounts are all that is written off of it.
INSERT INTO postpaid_writeoff (invoice_id, org_id, state, reason, user_id, amount, tax, tax_base, booked_at, disputed)
VALUES (@invoice_id, @org_id, 'booked', @reason, @user_id, @amount, @tax, @tax_base, clock_timestamp(), true)
ON CONFLICT (invoice_id) DO UPDATE SET state = 'booked', asked = postpaid_writeoff.asked + 1, reason = excluded.reason, user_id = excluded.user_id,
    decided_at = clock_timestamp(), failure = '', amount = excluded.amount, tax = excluded.tax, tax_base = excluded.tax_base,
    booked_at = excluded.booked_at, closed_at = NULL, disputed = true
RETURNING invoice_id, org_id, state, asked, reason, user_id, decided_at, failure, amount, tax, tax_base, booked_at, closed_at, disputed;

-- name: PostpaidBankPayment :one
SELECT amount FROM postpaid_bank_payment WHERE invoice_id = @invoice_id AND reference = @reference;

-- name: InsertPostpaidBankPayment :exec
INSERT INTO postpaid_bank_payment (invoice_id, reference, org_id, amount, waived, reason, user_id)
VALUES (@invoice_id, @reference, @org_id, @amount, @waived, @reason, @user_id);

-- name: ReducePostpaidWriteOff :exec
UPDATE postpaid_writeoff SET amount = @amount, tax = @tax, tax_base = @tax_base WHERE invoice_id = @invoice_id;

-- name: ClosePostpaidWriteOff :exec
UPDATE postpaid_writeoff SET state = @state, failure = @failure, closed_at = clock_timestamp() WHERE invoice_id = @invoice_id;

-- name: PostpaidWrittenOff :one
-- What is written off of an org and was not paid after all.
SELECT coalesce(sum(amount), 0)::bigint AS amount FROM postpaid_writeoff WHERE org_id = $1 AND state = 'booked';

-- name: ClaimPostpaidQuestions :many
-- scan: moves asked_at
-- Claims orgs of which an event of Stripe is overdue.
UPDATE postpaid_org u SET asked_at = clock_timestamp()
WHERE u.org_id IN (
    SELECT p.org_id FROM postpaid_org p
    WHERE p.subscription IS NOT NULL AND p.asked_at < statement_timestamp() - make_interval(secs => @wait_s::float8)
      AND (p.period_end < statement_timestamp() OR p.unsubscribed_at IS NOT NULL
           OR EXISTS (SELECT FROM postpaid_invoice i WHERE i.org_id = p.org_id AND i.state IN ('draft', 'open', 'uncollectible')))
    ORDER BY p.asked_at
    LIMIT @max_rows
    FOR UPDATE SKIP LOCKED)
RETURNING u.org_id, coalesce(u.subscription, '')::text AS subscription;

-- name: PostpaidUsage :many
-- What was booked of an org's leases between two times, and when each was last booked before.
WITH posted AS (
    SELECT x.ref, split_part(x.key, ':', 2) AS lease, sum(f.amount)::bigint AS amount, min(x.created_at) AS first_at, max(x.created_at) AS last_at
    FROM ledger_account a
    JOIN ledger_transfer f ON f.debit_account_id = a.id
    JOIN ledger_tx x ON x.id = f.tx_id
    WHERE a.org_id = @org_id AND a.kind = 'renter_hold' AND a.currency = @currency AND x.kind = 'usage'
      AND x.created_at >= @from_time AND x.created_at < @to_time
    GROUP BY x.ref, split_part(x.key, ':', 2))
SELECT p.ref, p.lease::text AS lease, p.amount::bigint AS amount, p.last_at::timestamptz AS last_at,
       coalesce((SELECT max(e.created_at) FROM ledger_tx e
                 WHERE e.ref = p.ref AND e.kind = 'usage' AND split_part(e.key, ':', 2) = p.lease AND e.created_at < @from_time),
                to_timestamp(0))::timestamptz AS since
FROM posted p
ORDER BY p.first_at, p.lease
LIMIT @max_rows;

-- name: PostpaidRan :one
-- When a lease ran of which a report came between two times, by its segments.
SELECT coalesce(min(s.start_ms), 0)::bigint AS from_ms, coalesce(max(s.end_ms), 0)::bigint AS to_ms
FROM usage_segment s
WHERE s.lease_id = @lease_id AND s.received_at > @since AND s.received_at <= @last_at;

-- name: PostpaidStorage :one
-- What an org's wallet was charged between two times for what its volumes store.
SELECT coalesce(sum(f.amount), 0)::bigint AS amount
FROM ledger_account a
JOIN ledger_transfer f ON f.debit_account_id = a.id
JOIN ledger_tx x ON x.id = f.tx_id
WHERE a.org_id = @org_id AND a.kind = 'renter_wallet' AND a.currency = @currency
  AND x.kind = 'storage' AND x.created_at >= @from_time AND x.created_at < @to_time;

-- name: PostpaidReturned :one
-- What came back to an org's wallet between two times for usage it was charged.
SELECT coalesce(sum(f.amount), 0)::bigint AS amount
FROM ledger_account a
JOIN ledger_transfer f ON f.credit_account_id = a.id
JOIN ledger_tx x ON x.id = f.tx_id
WHERE a.org_id = @org_id AND a.kind = 'renter_wallet' AND a.currency = @currency
  AND x.kind IN ('service_credit', 'compensation') AND x.created_at >= @from_time AND x.created_at < @to_time;
