-- name: InsertBalanceTx :execrows
INSERT INTO stripe_balance (id, type, source, amount, fee, currency, keys, state, at) VALUES ($1, $2, $3, $4, $5, $6, $7, 'waiting', $8)
ON CONFLICT (id) DO NOTHING;

-- name: LeaseStripeRead :one
-- No row when another replica reads.
UPDATE stripe_read SET leased_until = clock_timestamp() + make_interval(secs => @lease_s::float8)
WHERE leased_until < clock_timestamp()
RETURNING through, clock_timestamp()::timestamptz AS now;

-- name: AdvanceStripeRead :exec
-- Everything until through is stored; the lease goes on.
UPDATE stripe_read SET through = greatest(through, @through), leased_until = clock_timestamp() + make_interval(secs => @lease_s::float8);

-- name: EndStripeRead :exec
UPDATE stripe_read SET leased_until = '-infinity';

-- name: OpenBalanceTxs :many
-- scan: moves next_at
-- Takes changes to match, those never looked at first. One that waits for its entry comes again with the next pass, behind
-- all others; one in suspense after 15 minutes, then less often, daily at the end.
UPDATE stripe_balance b
SET attempts = b.attempts + 1,
    next_at = clock_timestamp() + CASE b.state WHEN 'suspense' THEN interval '15 minutes' * least(96, power(2, least(b.attempts, 7))) ELSE interval '0' END
WHERE b.id IN (SELECT o.id FROM stripe_balance o WHERE o.state IN ('waiting', 'suspense') AND o.next_at <= statement_timestamp()
               ORDER BY o.next_at, o.seen_at, o.id LIMIT $1 FOR UPDATE SKIP LOCKED)
RETURNING b.id, b.source, b.keys;

-- name: BalanceTxForUpdate :one
SELECT id, type, source, amount, fee, currency, keys, state, matched, at, seen_at,
       clock_timestamp() - seen_at > make_interval(secs => @wait_s::float8) AS late
FROM stripe_balance WHERE id = @id FOR UPDATE;

-- name: ClearingByKey :many
-- What the entries with these keys have moved of the platform's money at Stripe, credit minus debit, in the order of keys.
SELECT x.key, sum(e.amount)::bigint AS amount
FROM ledger_tx x
JOIN ledger_entry e ON e.tx_id = x.id
JOIN ledger_account a ON a.id = e.account_id
WHERE x.key = ANY(@keys::text[]) AND a.kind = 'stripe_clearing' AND a.currency = @currency
  AND NOT EXISTS (SELECT FROM stripe_balance b WHERE b.matched = x.key)
GROUP BY x.key
ORDER BY array_position(@keys::text[], x.key);

-- name: SetBalanceTx :exec
UPDATE stripe_balance SET state = @state, matched = @matched, attempts = 0 WHERE id = @id;

-- name: ReconcileTotals :one
SELECT coalesce(sum(amount - fee), 0)::bigint AS stripe,
       count(*) FILTER (WHERE state = 'waiting') AS waiting, count(*) FILTER (WHERE state = 'suspense') AS suspense,
       count(*) FILTER (WHERE state IN ('matched', 'resolved')) AS matched
FROM stripe_balance WHERE currency = $1;

-- name: ListOpenBalanceTxs :many
-- scan: page
SELECT id, type, source, amount, fee, currency, state, at, seen_at FROM stripe_balance
WHERE state IN ('waiting', 'suspense') ORDER BY at DESC LIMIT $1;

-- name: UnmatchedClearing :many
-- scan: page
-- Entries that by the ledger moved money at Stripe, and that no change of Stripe's balance has matched in time.
SELECT x.key, x.kind, x.ref, x.created_at, sum(e.amount)::bigint AS amount
FROM ledger_entry e
JOIN ledger_account a ON a.id = e.account_id AND a.kind = 'stripe_clearing'
JOIN ledger_tx x ON x.id = e.tx_id
WHERE x.created_at < statement_timestamp() - make_interval(secs => @wait_s::float8)
  AND x.created_at > statement_timestamp() - interval '90 days'
  AND x.kind NOT IN ('stripe_fee', 'stripe_suspense')
  AND NOT EXISTS (SELECT FROM stripe_balance b WHERE b.matched = x.key)
GROUP BY x.key, x.kind, x.ref, x.created_at
ORDER BY x.created_at DESC
LIMIT @max_rows;

-- name: BalanceReadSum :one
SELECT coalesce(sum(amount - fee), 0)::bigint AS read FROM stripe_balance WHERE currency = $1;

-- name: PutStripeFunds :one
INSERT INTO stripe_funds (currency, available, pending, reserved, read, asked_at, off_since)
VALUES (@currency, @available, @pending, @reserved, @read, clock_timestamp(),
        CASE WHEN @off::boolean THEN clock_timestamp() END)
ON CONFLICT (currency) DO UPDATE
SET available = excluded.available, pending = excluded.pending, reserved = excluded.reserved, read = excluded.read, asked_at = excluded.asked_at,
    off_since = CASE WHEN excluded.off_since IS NULL THEN NULL ELSE coalesce(stripe_funds.off_since, excluded.off_since) END,
    told_at = CASE WHEN excluded.off_since IS NULL THEN NULL ELSE stripe_funds.told_at END
RETURNING (off_since IS NOT NULL AND told_at IS NULL AND off_since < clock_timestamp() - make_interval(secs => @patience_s::float8))::boolean AS due;

-- name: ToldStripeFunds :exec
UPDATE stripe_funds SET told_at = clock_timestamp() WHERE currency = @currency;

-- name: StripeFunds :one
SELECT currency, available, pending, reserved, read, asked_at, off_since, told_at FROM stripe_funds WHERE currency = $1;
