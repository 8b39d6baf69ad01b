-- name: LockTopups :exec
-- Until the end of the transaction: the org's top-ups are counted one after the other.
SELECT pg_advisory_xact_lock(hashtext('topup'), hashtext(@org_id::text));

-- name: PayerStanding :one
SELECT EXISTS (SELECT FROM membership m JOIN app_user u ON u.id = m.user_id
               WHERE m.org_id = @org_id::uuid AND m.role = 'owner' AND u.email_verified_at IS NOT NULL) AS email_verified,
       EXISTS (SELECT FROM payment_card k WHERE k.org_id = @org_id::uuid AND k.removed_at IS NULL) AS card_verified,
       (SELECT coalesce(sum(t.amount), 0) FROM topup t WHERE t.org_id = @org_id::uuid AND t.state IN ('pending', 'succeeded'))::bigint AS added;
