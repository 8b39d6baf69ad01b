-- name: MaturedThrough :one
SELECT through FROM payout_matured WHERE org_id = $1 AND currency = $2;

-- name: SetMaturedThrough :exec
INSERT INTO payout_matured (org_id, currency, through) VALUES ($1, $2, $3)
ON CONFLICT (org_id, currency) DO UPDATE SET through = excluded.through WHERE payout_matured.through < excluded.through;

-- name: LinkedRenters :many
-- Orgs an operator earned from since a moment that look like the operator, and why.
WITH renter AS (
    SELECT e.payer_org_id AS renter_org_id
    FROM operator_earning e
    WHERE e.host_org_id = @host_org_id AND e.currency = @currency AND e.last_at >= @since
      AND e.payer_org_id NOT IN (@host_org_id, '00000000-0000-0000-0000-000000000000')
), linked AS (
    SELECT r.renter_org_id, array_remove(ARRAY[
        CASE WHEN EXISTS (SELECT FROM membership a JOIN membership b ON b.user_id = a.user_id
                          WHERE a.org_id = @host_org_id AND b.org_id = r.renter_org_id) THEN 'member' END,
        CASE WHEN EXISTS (SELECT FROM org_legal a JOIN org_legal b ON b.vat_id = a.vat_id
                          WHERE a.org_id = @host_org_id AND b.org_id = r.renter_org_id AND a.vat_id <> '') THEN 'vat_id' END,
        CASE WHEN EXISTS (SELECT FROM org_legal a JOIN org_legal b ON b.country = a.country
                          AND regexp_replace(lower(b.name), '[^[:alnum:]]+', '', 'g') = regexp_replace(lower(a.name), '[^[:alnum:]]+', '', 'g')
                          AND regexp_replace(lower(array_to_string(b.address, ' ')), '[^[:alnum:]]+', '', 'g')
                            = regexp_replace(lower(array_to_string(a.address, ' ')), '[^[:alnum:]]+', '', 'g')
                          WHERE a.org_id = @host_org_id AND b.org_id = r.renter_org_id) THEN 'legal_name' END,
        CASE WHEN EXISTS (SELECT FROM payment_card a JOIN payment_card b ON b.fingerprint = a.fingerprint
                          WHERE a.org_id = @host_org_id AND b.org_id = r.renter_org_id) THEN 'card' END], NULL)::text[] AS reasons
    FROM renter r)
SELECT renter_org_id, reasons FROM linked WHERE cardinality(reasons) > 0 ORDER BY renter_org_id;

-- name: OpenPayoutReview :exec
-- Once per operator and renter. What was made payable before (until matured) stays so. Reasons only come, they do not go.
INSERT INTO payout_review (id, host_org_id, renter_org_id, currency, reasons, through, base)
VALUES (@id, @host_org_id, @renter_org_id, @currency, @reasons, @matured, greatest(0, payout_earned_from(@host_org_id, @renter_org_id, @currency, @matured)))
ON CONFLICT (host_org_id, renter_org_id, currency) DO UPDATE
SET reasons = ARRAY(SELECT DISTINCT x FROM unnest(payout_review.reasons || excluded.reasons) x ORDER BY x), held_limit = NULL
WHERE NOT payout_review.reasons @> excluded.reasons;

-- name: QueueLostDisputes :exec
-- Lost disputes of payers from whom an operator has earned since a moment, where it first earned from the payer after the loss: by two days
-- after it, all that the disputed payment paid for is booked.
INSERT INTO lost_dispute (dispute_id, host_org_id)
SELECT d.id, e.host_org_id
FROM operator_earning e
JOIN dispute d ON d.org_id = e.payer_org_id AND d.currency = e.currency AND d.kind = 'dispute' AND d.state = 'lost' AND e.last_at >= d.paid_at
WHERE e.host_org_id = @host_org_id AND e.currency = @currency AND e.payer_org_id <> @host_org_id AND e.last_at >= @since
  AND NOT EXISTS (SELECT FROM lost_dispute l WHERE l.dispute_id = d.id AND l.host_org_id = e.host_org_id)
  AND EXISTS (SELECT FROM operator_earning_hour h
              WHERE h.host_org_id = e.host_org_id AND h.currency = e.currency AND h.payer_org_id = e.payer_org_id
                AND h.hour >= date_trunc('hour', d.paid_at, 'UTC') AND h.last_at >= d.paid_at AND h.hour <= d.closed_at + interval '2 days')
ON CONFLICT DO NOTHING;

-- name: LostRenters :many
-- Renters of whose lost disputes an operator's review has taken over some but not all, with what they lost in all and the earliest payment
-- that was taken back.
SELECT d.org_id AS renter_org_id, sum(d.amount - d.tax)::bigint AS lost, min(d.paid_at)::timestamptz AS paid_at, array_agg(d.id ORDER BY d.id)::text[] AS disputes
FROM lost_dispute l JOIN dispute d ON d.id = l.dispute_id
WHERE l.host_org_id = @host_org_id AND d.currency = @currency
  AND d.org_id IN (SELECT n.org_id FROM lost_dispute o JOIN dispute n ON n.id = o.dispute_id
                   WHERE o.host_org_id = @host_org_id AND o.reviewed_at IS NULL AND n.currency = @currency)
GROUP BY d.org_id
ORDER BY d.org_id;

-- name: ReviewedLostDisputes :exec
UPDATE lost_dispute SET reviewed_at = clock_timestamp()
WHERE host_org_id = @host_org_id AND dispute_id = ANY(@disputes::text[]) AND reviewed_at IS NULL;

-- name: OpenLostReview :exec
-- Once per operator and renter. What was earned before the payment is not reviewed, and of what was earned since, only what has
-- not been paid out (unpaid: while the dispute was open, it was held back of what had matured). A review that is there for another reason
-- holds all that was earned since; base falls so far that it holds this, too. Further losses raise the limit.
INSERT INTO payout_review (id, host_org_id, renter_org_id, currency, reasons, through, base, held_limit, advice)
SELECT @id, @host_org_id, @renter_org_id, @currency, '{lost_dispute}', @matured,
       greatest(0, payout_earned_from(@host_org_id, @renter_org_id, @currency, greatest(@matured::timestamptz, @paid_at::timestamptz))
                   - least(@unpaid::bigint, greatest(0, payout_earned_from(@host_org_id, @renter_org_id, @currency, greatest(@matured::timestamptz, @paid_at::timestamptz))
                                                        - payout_earned_from(@host_org_id, @renter_org_id, @currency, @paid_at::timestamptz)))),
       @held_limit, @advice
ON CONFLICT (host_org_id, renter_org_id, currency) DO UPDATE
SET reasons = ARRAY(SELECT DISTINCT x FROM unnest(payout_review.reasons || excluded.reasons) x ORDER BY x),
    held_limit = CASE WHEN payout_review.held_limit IS NOT NULL THEN excluded.held_limit END,
    base = least(payout_review.base, excluded.base),
    advice = CASE WHEN payout_review.held_limit IS DISTINCT FROM excluded.held_limit OR payout_review.advice = '' THEN excluded.advice ELSE payout_review.advice END
WHERE NOT payout_review.reasons @> excluded.reasons OR payout_review.held_limit < excluded.held_limit OR payout_review.base > excluded.base;

-- name: OperatorStanding :one
-- When an operator first earned, and what it has earned in all and from one renter.
SELECT coalesce((SELECT a.created_at FROM ledger_account a WHERE a.kind = 'host_pending' AND a.owner = @host_org_id AND a.currency = @currency), clock_timestamp())::timestamptz AS since,
       coalesce((SELECT e.earned FROM operator_earning e WHERE e.host_org_id = @host_org_id AND e.currency = @currency
                   AND e.payer_org_id = '00000000-0000-0000-0000-000000000000'), 0)::bigint AS earned,
       payout_earned_from(@host_org_id, @renter_org_id, @currency, clock_timestamp()) AS from_renter;

-- name: FirstEarned :one
-- When an operator first earned.
SELECT created_at FROM ledger_account WHERE kind = 'host_pending' AND owner = @org_id AND currency = @currency;

-- name: HoldForReview :exec
-- Counts again what an operator earned until the cutoff from renters under review, less what was decided.
UPDATE payout_review v
SET held = greatest(0, least(payout_earned_from(v.host_org_id, v.renter_org_id, v.currency, @cutoff) - v.base,
                             coalesce(v.held_limit, 9223372036854775807)) - v.released - v.refused), through = @cutoff
WHERE v.host_org_id = @host_org_id AND v.currency = @currency;

-- name: HeldForReview :one
SELECT coalesce(sum(held), 0)::bigint AS held FROM payout_review WHERE host_org_id = $1 AND currency = $2;

-- name: PayoutReview :one
SELECT id, host_org_id, renter_org_id, currency, reasons, base, held, released, refused, through, decision, decided_at, created_at, held_limit, advice
FROM payout_review WHERE id = $1;

-- name: ReleasePayoutReview :exec
UPDATE payout_review SET released = released + held, held = 0, decision = @decision, decided_at = clock_timestamp() WHERE id = @id;

-- name: RefusePayoutReview :exec
UPDATE payout_review SET refused = refused + held, held = 0, decision = @decision, decided_at = clock_timestamp() WHERE id = @id;

-- name: FindPayoutReviews :many
-- Of one org, as operator or as renter, or of all; only those with something to decide on, or all.
SELECT v.id, v.host_org_id, v.renter_org_id, v.currency, v.reasons, v.base, v.held, v.released, v.refused, v.through, v.decision, v.decided_at, v.created_at, v.held_limit, v.advice
FROM payout_review v
WHERE (@before::uuid = '00000000-0000-0000-0000-000000000000' OR v.id < @before::uuid)
  AND (sqlc.narg(org)::uuid IS NULL OR v.host_org_id = sqlc.narg(org)::uuid OR v.renter_org_id = sqlc.narg(org)::uuid)
  AND (NOT @waiting::boolean OR v.held > 0)
ORDER BY v.id DESC
LIMIT @max_rows;

-- name: DisputedEarnings :many
-- Each open dispute of a payment, and each lost one until a review has taken it over (ReviewedLostDisputes), with what each of the operators
-- earned since the payment from its payer: in all, after the cutoff, and of what a review looks at, and how much of the renter's is
-- in review. The tax of a payment is not part of any earnings.
WITH claim AS (
    SELECT o.id, h.host_org_id FROM dispute o CROSS JOIN (SELECT unnest(@host_orgs::uuid[]) AS host_org_id) h WHERE o.state = 'open'
    UNION
    SELECT l.dispute_id, l.host_org_id FROM lost_dispute l WHERE l.host_org_id = ANY(@host_orgs::uuid[]) AND l.reviewed_at IS NULL
)
SELECT e.host_org_id, d.id, d.org_id AS renter_org_id, (d.amount - d.tax)::bigint AS amount, s.earned, s.young,
       (CASE WHEN v.through >= d.paid_at THEN s.earned - s.unreviewed ELSE 0 END)::bigint AS reviewable, coalesce(v.held, 0)::bigint AS held
FROM claim c
JOIN dispute d ON d.id = c.id
JOIN operator_earning e ON e.host_org_id = ANY(@host_orgs::uuid[]) AND e.host_org_id = c.host_org_id AND e.currency = d.currency AND e.payer_org_id = d.org_id AND e.last_at >= d.paid_at
LEFT JOIN payout_review v ON v.host_org_id = e.host_org_id AND v.renter_org_id = d.org_id AND v.currency = d.currency
CROSS JOIN LATERAL ( -- earned at the moment of the payment is earned since it
    SELECT operator_earned_after(e.host_org_id, d.org_id, d.currency, d.paid_at - interval '1 microsecond')::bigint AS earned,
           operator_earned_after(e.host_org_id, d.org_id, d.currency, greatest(d.paid_at - interval '1 microsecond', @cutoff::timestamptz))::bigint AS young,
           operator_earned_after(e.host_org_id, d.org_id, d.currency, greatest(d.paid_at - interval '1 microsecond', v.through))::bigint AS unreviewed) s
WHERE d.currency = @currency
ORDER BY e.host_org_id, d.org_id, d.paid_at DESC, d.id;
