-- +goose Up
-- A dispute claims what is in the bond of its org's hosts after what is in the wallet. Of held, held_bond was retained from earnings: if the
-- dispute is won, it returns to the bond, so that a wallet never gets earnings.
ALTER TABLE dispute
    ADD COLUMN held_bond bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT dispute_held_bond CHECK (held_bond BETWEEN 0 AND held) NOT VALID,
    ADD CONSTRAINT dispute_held_amount CHECK (held <= amount) NOT VALID,
    ADD CONSTRAINT dispute_debt_lost CHECK (debt = 0 OR debt <= amount AND state = 'lost') NOT VALID;

-- +goose Down
ALTER TABLE dispute DROP CONSTRAINT dispute_debt_lost, DROP CONSTRAINT dispute_held_amount, DROP CONSTRAINT dispute_held_bond, DROP COLUMN held_bond;
