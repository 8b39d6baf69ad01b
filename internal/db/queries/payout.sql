-- name: OperatorsWithPending :many
-- Operators whose earnings the platform has: pending, payable, or in the bond of their hosts, reserved for leases or not. A review may take
-- that over. And those of whose payers' lost disputes no review has taken notice, even if nothing is left.
SELECT a.org_id, a.currency
FROM ledger_account a
WHERE a.kind = 'host_pending' AND a.org_id IS NOT NULL
  AND (EXISTS (SELECT FROM ledger_account p JOIN ledger_balance x ON x.account_id = p.id
               WHERE p.kind IN ('host_pending', 'host_payable', 'host_bond') AND p.owner = a.owner AND p.currency = a.currency AND x.amount > 0)
       OR EXISTS (SELECT FROM lease_bond l WHERE l.org_id = a.org_id AND l.currency = a.currency AND l.reserved > 0 AND l.released_at IS NULL)
       OR EXISTS (SELECT FROM lost_dispute d WHERE d.host_org_id = a.org_id AND d.reviewed_at IS NULL))
ORDER BY a.org_id, a.currency;

-- name: EarnedSince :one
-- What an operator earned after the cutoff.
SELECT operator_earned_after(@org_id::uuid, '00000000-0000-0000-0000-000000000000', @currency::text, @cutoff::timestamptz)::bigint AS amount;

-- name: InsertPayoutAccount :execrows
INSERT INTO payout_account (org_id, user_id, country, next_at) VALUES ($1, $2, $3, $4) ON CONFLICT (org_id) DO NOTHING;

-- name: RetryPayoutAccount :exec
UPDATE payout_account SET user_id = @user_id, country = @country, tries = tries + 1, failure = '' WHERE org_id = @org_id AND stripe_account IS NULL;

-- name: PayoutAccount :one
SELECT org_id, user_id, country, tries, stripe_account, failure, submitted, ready, due, checking, disabled, stopped, failures, next_at,
       checked_at, created_at, poll_at, pay_at
FROM payout_account WHERE org_id = $1;

-- name: PayoutAccountForUpdate :one
SELECT org_id, user_id, country, tries, stripe_account, failure, submitted, ready, due, checking, disabled, stopped, failures, next_at,
       checked_at, created_at, poll_at, pay_at
FROM payout_account WHERE org_id = $1 FOR UPDATE;

-- name: PayoutAccountOfStripe :one
SELECT org_id FROM payout_account WHERE stripe_account = $1;

-- name: SetPayoutAccountID :exec
-- The first one made stands.
UPDATE payout_account SET stripe_account = @stripe_account, failure = '' WHERE org_id = @org_id AND stripe_account IS NULL;

-- name: FailPayoutAccount :exec
UPDATE payout_account SET failure = @failure WHERE org_id = @org_id AND stripe_account IS NULL;

-- name: SetPayoutAccountState :exec
UPDATE payout_account
SET submitted = @submitted, ready = @ready, due = @due, checking = @checking, disabled = @disabled, checked_at = clock_timestamp(), poll_at = 'epoch'
WHERE org_id = @org_id;

-- name: SetPayoutNext :exec
UPDATE payout_account SET next_at = @next_at, pay_at = 'epoch' WHERE org_id = @org_id;

-- name: SetPayoutFailures :exec
-- After a failure the next attempt may come sooner than scheduled, never later.
UPDATE payout_account SET failures = @failures, pay_at = 'epoch', next_at = least(next_at, clock_timestamp() + make_interval(secs => @wait_s::float8))
WHERE org_id = @org_id;

-- name: ClearPayoutFailures :exec
UPDATE payout_account SET failures = 0 WHERE org_id = $1 AND failures <> 0;

-- name: SetPayoutStopped :execrows
UPDATE payout_account SET stopped = @why WHERE org_id = @org_id AND stopped <> @why;

-- name: DuePayoutAccounts :many
-- scan: moves pay_at
-- Takes operators whose payout is due. One that is not paid, because something went wrong, comes again in a minute, behind the others.
UPDATE payout_account u SET pay_at = clock_timestamp() + interval '1 minute'
WHERE u.org_id IN (
    SELECT a.org_id FROM payout_account a
    WHERE a.ready AND a.stopped = '' AND a.next_at <= statement_timestamp() AND a.pay_at <= statement_timestamp()
      AND NOT EXISTS (SELECT FROM payout p WHERE p.org_id = a.org_id AND p.state = 'pending')
    ORDER BY a.pay_at, a.next_at, a.org_id
    LIMIT @max_rows
    FOR UPDATE OF a SKIP LOCKED)
RETURNING u.org_id;

-- name: StalePayoutAccounts :many
-- scan: moves poll_at
-- Claims accounts to read from Stripe in case an event was lost: often while their owner may be filling in the form, else daily.
UPDATE payout_account u SET poll_at = clock_timestamp() + interval '10 minutes'
WHERE u.org_id IN (
    SELECT a.org_id FROM payout_account a
    WHERE a.stripe_account IS NOT NULL AND a.poll_at <= statement_timestamp() AND a.checked_at < statement_timestamp()
          - CASE WHEN a.ready OR a.created_at < statement_timestamp() - interval '7 days' THEN interval '1 day' ELSE interval '10 minutes' END
    ORDER BY a.poll_at, a.checked_at
    LIMIT @max_rows
    FOR UPDATE SKIP LOCKED)
RETURNING u.stripe_account::text;

-- name: PostponePayoutPoll :exec
UPDATE payout_account SET poll_at = clock_timestamp() + make_interval(secs => @wait_s::float8) WHERE stripe_account = @stripe_account;

-- name: InsertPayout :exec
INSERT INTO payout (id, org_id, stripe_account, amount, currency, state) VALUES ($1, $2, $3, $4, $5, 'pending');

-- name: Payout :one
SELECT id, org_id, stripe_account, amount, currency, state, stripe_transfer, reversed, failure, created_at, settled_at,
       reversal_state, reversal, reversal_amount, reversal_failure
FROM payout WHERE id = $1;

-- name: PayoutForUpdate :one
SELECT id, org_id, stripe_account, amount, currency, state, stripe_transfer, reversed, failure, created_at, settled_at,
       reversal_state, reversal, reversal_amount, reversal_failure
FROM payout WHERE id = $1 FOR UPDATE;

-- name: PayoutPending :one
SELECT count(*) FROM payout WHERE org_id = $1 AND currency = $2 AND state = 'pending';

-- name: ListPayouts :many
SELECT id, org_id, stripe_account, amount, currency, state, stripe_transfer, reversed, failure, created_at, settled_at,
       reversal_state, reversal, reversal_amount, reversal_failure
FROM payout
WHERE org_id = @org_id AND (@before::uuid = '00000000-0000-0000-0000-000000000000' OR id < @before::uuid)
ORDER BY id DESC
LIMIT @max_rows;

-- name: SettlePayout :exec
UPDATE payout SET state = @state, stripe_transfer = coalesce(sqlc.narg(stripe_transfer), stripe_transfer), failure = @failure, settled_at = clock_timestamp()
WHERE id = @id;

-- name: InsertPayoutReversal :execrows
INSERT INTO payout_reversal (id, payout_id, amount) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING;

-- name: AddPayoutReversed :exec
UPDATE payout SET reversed = reversed + @amount WHERE id = @id;

-- name: AskPayoutReversal :exec
-- What is requested to come back; an earlier refusal is cleared.
UPDATE payout SET reversal_state = 'asked', reversal = @reversal, reversal_amount = @amount, reversal_failure = '' WHERE id = @id;

-- name: RefusePayoutReversal :exec
-- Of the last one requested, or of one that was requested without being stored here.
UPDATE payout SET reversal_state = 'refused', reversal = @reversal, reversal_amount = @amount, reversal_failure = @failure
WHERE id = @id AND reversal IN ('', @reversal);

-- name: ClosePayoutReversal :exec
-- It came back; or all of the payout did, so that nothing is left to request.
UPDATE payout SET reversal_state = '', reversal = '', reversal_amount = 0, reversal_failure = ''
WHERE id = @id AND reversal <> '' AND (reversal = @reversal OR reversed = amount);

-- name: PayoutReversalOpen :one
-- Whether a reversal waits for an answer of Stripe.
SELECT EXISTS (SELECT FROM stripe_outbox WHERE kind = 'transfer.reverse' AND ref = @payout::text AND state IN ('pending', 'sent', 'unknown'));

-- name: PayoutTotals :one
-- What was sent to an operator and not taken back, and what is on its way.
SELECT coalesce(sum(amount - reversed) FILTER (WHERE state = 'paid'), 0)::bigint AS paid,
       coalesce(sum(amount) FILTER (WHERE state = 'pending'), 0)::bigint AS sending
FROM payout WHERE org_id = $1 AND currency = $2;

-- name: ListAllPayouts :many
SELECT id, org_id, stripe_account, amount, currency, state, stripe_transfer, reversed, failure, created_at, settled_at,
       reversal_state, reversal, reversal_amount, reversal_failure
FROM payout
WHERE @before::uuid = '00000000-0000-0000-0000-000000000000' OR id < @before::uuid
ORDER BY id DESC
LIMIT @max_rows;

-- name: PayoutMonths :many
-- What an operator earned, gave back, was paid and had taken back, by the months of a zone. from_id and to_id bound the ids: they
-- are in the order of time, and have the index.
SELECT to_char(m.at AT TIME ZONE @zone::text, 'YYYY-MM')::text AS month,
       coalesce(sum(m.amount) FILTER (WHERE m.inward AND m.account = 'host_pending'), 0)::bigint AS earned,
       coalesce(sum(m.amount) FILTER (WHERE NOT m.inward AND m.account = 'host_pending' AND m.kind NOT IN ('payout_mature', 'payout_paid')), 0)::bigint AS returned,
       (coalesce(sum(m.amount) FILTER (WHERE NOT m.inward AND m.kind IN ('payout', 'payout_paid')), 0)
        - coalesce(sum(m.amount) FILTER (WHERE m.inward AND m.kind = 'payout_failed'), 0))::bigint AS paid,
       coalesce(sum(m.amount) FILTER (WHERE m.inward AND m.kind = 'payout_reversed'), 0)::bigint AS taken_back
FROM (SELECT t.created_at AS at, t.amount, true AS inward, a.kind AS account, x.kind
      FROM ledger_account a JOIN ledger_transfer t ON t.credit_account_id = a.id JOIN ledger_tx x ON x.id = t.tx_id
      WHERE a.org_id = @org_id AND a.currency = @currency AND a.kind IN ('host_pending', 'host_payable')
        AND t.id >= @from_id::uuid AND t.id < @to_id::uuid AND t.created_at >= @since AND t.created_at < @until
      UNION ALL
      SELECT t.created_at, t.amount, false, a.kind, x.kind
      FROM ledger_account a JOIN ledger_transfer t ON t.debit_account_id = a.id JOIN ledger_tx x ON x.id = t.tx_id
      WHERE a.org_id = @org_id AND a.currency = @currency AND a.kind IN ('host_pending', 'host_payable')
        AND t.id >= @from_id::uuid AND t.id < @to_id::uuid AND t.created_at >= @since AND t.created_at < @until) m
GROUP BY 1
ORDER BY 1;

-- name: PayoutRun :many
-- scan: page
-- Operators whom the next payouts concern: who can be paid something, has failed, is stopped, or waits for Stripe.
SELECT o.id AS org_id, o.name AS org_name, coalesce(a.failures, 0)::integer AS failures,
       coalesce((SELECT p.failure FROM payout p WHERE p.org_id = o.id AND p.state = 'failed' ORDER BY p.id DESC LIMIT 1), '')::text AS failure
FROM org o
LEFT JOIN payout_account a ON a.org_id = o.id
LEFT JOIN ledger_account l ON l.kind = 'host_payable' AND l.owner = o.id AND l.currency = @currency
LEFT JOIN ledger_balance b ON b.account_id = l.id
WHERE b.amount > 0 OR a.failures > 0 OR a.stopped <> '' OR EXISTS (SELECT FROM payout p WHERE p.org_id = o.id AND p.state = 'pending')
ORDER BY (coalesce(a.failures, 0) > 0) DESC, coalesce(b.amount, 0) DESC, o.id
LIMIT @max_rows;

-- name: PayoutAccounts :many
SELECT org_id, user_id, country, tries, stripe_account, failure, submitted, ready, due, checking, disabled, stopped, failures, next_at,
       checked_at, created_at, poll_at, pay_at
FROM payout_account WHERE org_id = ANY(@orgs::uuid[]);

-- name: PayoutFunds :many
-- What the next payouts of operators depend on: what they earned, what of it is in review, how many payouts Stripe has yet to answer, and what
-- disputes of the operators' own payments claim (DisputeClaims).
SELECT o.id AS org_id,
       coalesce((SELECT b.amount FROM ledger_account l JOIN ledger_balance b ON b.account_id = l.id
                 WHERE l.kind = 'host_pending' AND l.owner = o.id AND l.currency = @currency), 0)::bigint AS pending,
       coalesce((SELECT b.amount FROM ledger_account l JOIN ledger_balance b ON b.account_id = l.id
                 WHERE l.kind = 'host_payable' AND l.owner = o.id AND l.currency = @currency), 0)::bigint AS payable,
       (SELECT coalesce(sum(v.held), 0) FROM payout_review v WHERE v.host_org_id = o.id AND v.currency = @currency)::bigint AS in_review,
       (SELECT count(*) FROM payout p WHERE p.org_id = o.id AND p.currency = @currency AND p.state = 'pending')::bigint AS on_the_way,
       (SELECT coalesce(sum(CASE WHEN d.state = 'open' THEN greatest(0, d.amount - CASE WHEN d.topup_id IS NULL THEN 0 ELSE d.tax END - d.held) ELSE d.debt END), 0)
        FROM dispute d WHERE d.org_id = o.id AND d.currency = @currency AND d.kind = 'dispute' AND (d.state = 'open' OR d.debt > 0))::bigint AS owed
FROM org o WHERE o.id = ANY(@orgs::uuid[]);

-- name: SetPayoutWaiting :exec
-- Why a payout is not sent yet.
UPDATE payout SET failure = @failure WHERE id = @id AND state = 'pending' AND failure <> @failure;

-- name: DropOldEarningHours :execrows
-- The hours are read back to a payment that is disputed, at most 540 days ago; operator_earning keeps the sums.
-- scan: done
DELETE FROM operator_earning_hour h USING (
    SELECT o.host_org_id, o.currency, o.payer_org_id, o.hour FROM operator_earning_hour o
    WHERE o.hour < statement_timestamp() - interval '800 days' LIMIT @max_rows) old
WHERE (h.host_org_id, h.currency, h.payer_org_id, h.hour) = (old.host_org_id, old.currency, old.payer_org_id, old.hour);
