-- name: DisputeClaims :one
-- What an org's disputes claim of its wallet: short of open ones, what of the disputed money is not set aside yet (tax is owed
-- to the tax office, and claimed from no one); of lost ones, what is not repaid yet.
SELECT coalesce(sum(greatest(0, amount - CASE WHEN topup_id IS NULL THEN 0 ELSE tax END - held)) FILTER (WHERE state = 'open'), 0)::bigint AS short,
       coalesce(sum(debt), 0)::bigint AS debt
FROM dispute
WHERE org_id = @org_id AND currency = @currency AND kind = 'dispute' AND (state = 'open' OR debt > 0);

-- name: LockDisputesWithClaims :many
-- The org's disputes that claim money. Rows are locked in the order of ids, before the ledger.
SELECT id, state, greatest(0, CASE WHEN state = 'open' THEN amount - CASE WHEN topup_id IS NULL THEN 0 ELSE tax END - held ELSE debt END)::bigint AS claim,
       held, held_bond, debt, created_at
FROM dispute
WHERE org_id = @org_id AND currency = @currency AND kind = 'dispute' AND (state = 'open' OR debt > 0)
ORDER BY id
FOR UPDATE;

-- name: WalletsWithClaims :many
-- scan: moves collect_at
-- Takes disputes that claim money which is in the wallet or in the bond now, or whose claims are not reserved there, those not looked at
-- longest first.
UPDATE dispute d
SET collect_at = clock_timestamp()
WHERE d.id IN (SELECT o.id
               FROM dispute o
               JOIN ledger_account a ON a.kind = 'renter_wallet' AND a.owner = o.org_id AND a.currency = o.currency
               JOIN ledger_balance b ON b.account_id = a.id
               LEFT JOIN ledger_account c ON c.kind = 'host_bond' AND c.owner = o.org_id AND c.currency = o.currency
               LEFT JOIN ledger_balance e ON e.account_id = c.id
               WHERE o.kind = 'dispute'
                 AND (o.state = 'open' AND o.amount - CASE WHEN o.topup_id IS NULL THEN 0 ELSE o.tax END > o.held OR o.debt > 0)
                 AND (b.amount > 0 OR b.reserved = 0 OR e.amount > 0 OR e.reserved = 0)
               ORDER BY o.collect_at, o.id LIMIT @max_rows FOR UPDATE OF o SKIP LOCKED)
RETURNING d.org_id, d.currency;

-- name: SetDisputeHeld :exec
UPDATE dispute SET held = @held, held_bond = @held_bond WHERE id = @id AND state = 'open';

-- name: SetDisputeDebt :exec
UPDATE dispute SET debt = @debt WHERE id = @id AND state = 'lost';

-- name: DisputeCounts :one
SELECT count(*) FILTER (WHERE state = 'open') AS open, count(*) FILTER (WHERE state = 'lost') AS lost,
       coalesce(sum(amount) FILTER (WHERE state = 'open'), 0)::bigint AS disputed
FROM dispute WHERE org_id = @org_id AND kind = 'dispute';

-- name: PaymentStandingForUpdate :one
SELECT org_id, state, forgiven, note, changed_at FROM payment_standing WHERE org_id = $1 FOR UPDATE;

-- name: PaymentStanding :one
SELECT org_id, state, forgiven, note, changed_at FROM payment_standing WHERE org_id = $1;

-- name: RenterStanding :one
SELECT coalesce((SELECT state FROM payment_standing WHERE org_id = @org_id), '')::text;

-- name: SetPaymentStanding :exec
INSERT INTO payment_standing (org_id, state, forgiven, note) VALUES (@org_id, @state, @forgiven, @note)
ON CONFLICT (org_id) DO UPDATE SET state = excluded.state, forgiven = excluded.forgiven, note = excluded.note, changed_at = clock_timestamp()
WHERE (payment_standing.state, payment_standing.forgiven, payment_standing.note) IS DISTINCT FROM (excluded.state, excluded.forgiven, excluded.note);

-- name: OrgsNotInGoodStanding :many
-- scan: page
SELECT s.org_id, o.name, s.state, s.changed_at,
       (SELECT count(*) FROM dispute d WHERE d.org_id = s.org_id AND d.kind = 'dispute' AND d.state = 'open') AS open,
       (SELECT count(*) FROM dispute d WHERE d.org_id = s.org_id AND d.kind = 'dispute' AND d.state = 'lost') AS lost,
       (SELECT coalesce(sum(d.debt), 0) FROM dispute d WHERE d.org_id = s.org_id AND d.currency = @currency)::bigint AS debt
FROM payment_standing s JOIN org o ON o.id = s.org_id
WHERE s.state <> 'ok'
ORDER BY s.changed_at DESC, s.org_id
LIMIT @max_rows;

-- name: AddedWhileDisputed :one
-- What an org has added since the first of its open disputes, payments under way included.
SELECT coalesce(sum(t.amount), 0)::bigint AS added
FROM topup t
WHERE t.org_id = @org_id AND t.state IN ('pending', 'succeeded')
  AND t.created_at > (SELECT min(d.created_at) FROM dispute d WHERE d.org_id = @org_id AND d.kind = 'dispute' AND d.state = 'open');

-- name: BlockCard :exec
INSERT INTO blocked_card (fingerprint, dispute_id) VALUES ($1, $2) ON CONFLICT (fingerprint) DO NOTHING;

-- name: CardIsBlocked :one
SELECT EXISTS (SELECT FROM blocked_card WHERE fingerprint = @fingerprint);

-- name: MethodIsBlocked :one
SELECT EXISTS (SELECT FROM payment_card k JOIN blocked_card b ON b.fingerprint = k.fingerprint WHERE k.method_id = @method_id);
