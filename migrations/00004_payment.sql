-- +goose Up
CREATE TABLE stripe_customer (
    org_id       uuid PRIMARY KEY REFERENCES org,
    customer_id  text NOT NULL UNIQUE,
    payment_method text NOT NULL DEFAULT '',        -- pm_… saved by the last checkout; '' = none
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE topup (
    id                 uuid PRIMARY KEY,
    org_id             uuid NOT NULL REFERENCES org,
    user_id            uuid,
    amount             bigint NOT NULL CHECK (amount > 0),  -- nano-units, whole cents
    currency           text NOT NULL,
    state              text NOT NULL CHECK (state IN ('pending', 'succeeded', 'failed', 'canceled')),
    payment_intent_id  text,
    checkout_url       text NOT NULL DEFAULT '',
    failure            text NOT NULL DEFAULT '',            -- why, in words for the payer
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at         timestamptz
);
CREATE INDEX topup_org ON topup (org_id, id);
CREATE INDEX topup_pending ON topup (created_at) WHERE state = 'pending';
CREATE UNIQUE INDEX topup_intent ON topup (payment_intent_id) WHERE payment_intent_id IS NOT NULL;

-- What must be said to Stripe exactly once. Written in the transaction that decides it; parameters and key are frozen.
CREATE TABLE stripe_outbox (
    id           uuid PRIMARY KEY,
    kind         text NOT NULL,                  -- 'customer.create', 'payment_intent.create', …
    ref          text NOT NULL,                  -- prefixed id of the object it belongs to
    params       jsonb NOT NULL,
    idem_key     text NOT NULL UNIQUE,
    state        text NOT NULL CHECK (state IN ('pending', 'sent', 'done', 'failed', 'unknown')),
    attempts     integer NOT NULL DEFAULT 0,
    next_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    result_id    text NOT NULL DEFAULT '',       -- Stripe's object id
    error        text NOT NULL DEFAULT '',
    first_sent_at timestamptz,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at      timestamptz
);
CREATE INDEX stripe_outbox_due ON stripe_outbox (next_at) WHERE state IN ('pending', 'sent', 'unknown');

CREATE TABLE stripe_event (
    id            text PRIMARY KEY,              -- evt_…
    type          text NOT NULL,
    object_id     text NOT NULL,
    created_at    timestamptz NOT NULL,          -- Stripe's
    received_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts      integer NOT NULL DEFAULT 0,
    next_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    processed_at  timestamptz,
    error         text NOT NULL DEFAULT ''
);
CREATE INDEX stripe_event_due ON stripe_event (next_at) WHERE processed_at IS NULL;
