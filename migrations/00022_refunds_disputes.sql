-- +goose Up
-- Unused balance on its way back to the card it came from: one row per original payment.
CREATE TABLE refund (
    id          uuid PRIMARY KEY,
    org_id      uuid NOT NULL REFERENCES org,
    topup_id    uuid NOT NULL REFERENCES topup,
    user_id     uuid,
    amount      bigint NOT NULL CHECK (amount > 0),     -- nano-units, whole cents
    currency    text NOT NULL,
    state       text NOT NULL CHECK (state IN ('pending', 'succeeded', 'failed')),
    refund_id   text UNIQUE,                            -- re_…
    failure     text NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at  timestamptz
);
CREATE INDEX refund_org ON refund (org_id, id);
CREATE INDEX refund_topup ON refund (topup_id);

-- A payment whose card's owner takes it back. held is what was set aside of the org's wallet.
CREATE TABLE dispute (
    id          text PRIMARY KEY,                       -- dp_…
    org_id      uuid NOT NULL REFERENCES org,
    topup_id    uuid NOT NULL REFERENCES topup,
    amount      bigint NOT NULL CHECK (amount > 0),     -- nano-units
    held        bigint NOT NULL CHECK (held >= 0),
    currency    text NOT NULL,
    reason      text NOT NULL DEFAULT '',
    state       text NOT NULL CHECK (state IN ('open', 'won', 'lost')),
    paid_at     timestamptz NOT NULL,                   -- the disputed payment: earnings since then are related
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at   timestamptz
);
CREATE INDEX dispute_topup ON dispute (topup_id);
CREATE INDEX dispute_open ON dispute (org_id) WHERE state = 'open';

-- Credit given away by code.
CREATE TABLE promo_code (
    code        text PRIMARY KEY,                       -- upper case
    amount      bigint NOT NULL CHECK (amount > 0),
    currency    text NOT NULL,
    max_uses    integer NOT NULL CHECK (max_uses > 0),
    uses        integer NOT NULL DEFAULT 0 CHECK (uses <= max_uses),
    expires_at  timestamptz,
    user_id     uuid NOT NULL,                          -- who made it
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE promo_redemption (
    code        text NOT NULL REFERENCES promo_code,
    org_id      uuid NOT NULL REFERENCES org,
    user_id     uuid NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (code, org_id)
);
-- Codes tried, so that nobody guesses them.
CREATE TABLE promo_attempt (
    org_id        uuid PRIMARY KEY REFERENCES org,
    attempts      integer NOT NULL,
    window_start  timestamptz NOT NULL
);
