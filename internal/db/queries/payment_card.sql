-- name: SaveCard :exec
-- A card that was removed stays so: Stripe gives a card that is saved again another id.
INSERT INTO payment_card (id, org_id, method_id, brand, last4, exp_month, exp_year, fingerprint, test)
VALUES (@id, @org_id, @method_id, @brand, @last4, @exp_month, @exp_year, @fingerprint, @test)
ON CONFLICT (method_id) DO UPDATE SET fingerprint = excluded.fingerprint WHERE payment_card.fingerprint IS NULL AND excluded.fingerprint IS NOT NULL;

-- name: ListCards :many
SELECT k.id, k.org_id, k.method_id, k.brand, k.last4, k.exp_month, k.exp_year, k.created_at, k.removed_at,
       k.method_id = c.payment_method AS is_default
FROM payment_card k
JOIN stripe_customer c ON c.org_id = k.org_id
WHERE k.org_id = $1 AND k.removed_at IS NULL
ORDER BY k.id DESC;

-- name: CardForUpdate :one
SELECT id, org_id, method_id, brand, last4, exp_month, exp_year, created_at, removed_at
FROM payment_card WHERE id = @id AND org_id = @org_id AND removed_at IS NULL
FOR UPDATE;

-- name: RemoveCard :exec
UPDATE payment_card SET removed_at = clock_timestamp() WHERE id = $1;

-- name: InsertCardSetup :exec
INSERT INTO card_setup (id, org_id, state) VALUES ($1, $2, 'pending');

-- name: CardSetup :one
SELECT id, org_id, state, url, failure, created_at, settled_at FROM card_setup WHERE id = $1;

-- name: SetCardSetupURL :exec
UPDATE card_setup SET url = @url WHERE id = @id AND state = 'pending';

-- name: SettleCardSetup :exec
UPDATE card_setup SET state = @state, failure = @failure, url = '', settled_at = clock_timestamp() WHERE id = @id AND state <> 'succeeded';

-- name: OpenCardSetups :one
SELECT count(*) FROM card_setup WHERE org_id = $1 AND state = 'pending' AND created_at > statement_timestamp() - interval '1 hour';

-- name: PendingCardSetupsOfOrg :many
SELECT id FROM card_setup WHERE org_id = $1 AND state = 'pending' ORDER BY id DESC LIMIT $2;
