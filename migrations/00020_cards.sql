-- +goose Up
-- Cards that Stripe keeps for an org: what is needed to name one to its owner. The default one is
-- stripe_customer.payment_method.
CREATE TABLE payment_card (
    id          uuid PRIMARY KEY,
    org_id      uuid NOT NULL REFERENCES org,
    method_id   text NOT NULL UNIQUE,               -- pm_…
    brand       text NOT NULL,
    last4       text NOT NULL,
    exp_month   integer NOT NULL,
    exp_year    integer NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    removed_at  timestamptz
);
CREATE INDEX payment_card_org ON payment_card (org_id, id) WHERE removed_at IS NULL;

-- A visit to the page on which a card is saved.
CREATE TABLE card_setup (
    id          uuid PRIMARY KEY,
    org_id      uuid NOT NULL REFERENCES org,
    state       text NOT NULL CHECK (state IN ('pending', 'succeeded', 'failed', 'canceled')),
    url         text NOT NULL DEFAULT '',
    failure     text NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at  timestamptz
);
CREATE INDEX card_setup_org ON card_setup (org_id, id);

ALTER TABLE topup ADD COLUMN action_url text NOT NULL DEFAULT '';    -- where the payer's bank asks, while pending
ALTER TABLE topup ADD COLUMN receipt_url text NOT NULL DEFAULT '';   -- Stripe's receipt, once succeeded
ALTER TABLE topup ADD COLUMN automatic boolean NOT NULL DEFAULT false;
