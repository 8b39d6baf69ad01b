-- +goose Up
-- Where an operator is paid: an account of theirs at Stripe, and what Stripe said of it when last asked.
CREATE TABLE payout_account (
    org_id      uuid PRIMARY KEY REFERENCES org,
    user_id     uuid,                                       -- who asked for it
    country     text NOT NULL CHECK (country ~ '^[A-Z]{2}$'),
    tries       integer NOT NULL DEFAULT 1,                 -- how often it was asked for: part of the idempotency key
    stripe_account text UNIQUE,                             -- acct_…; NULL until it is made
    failure     text NOT NULL DEFAULT '',                   -- why it could not be made, in words for the operator
    submitted   boolean NOT NULL DEFAULT false,
    ready       boolean NOT NULL DEFAULT false,             -- money sent there arrives
    due         text[] NOT NULL DEFAULT '{}',               -- what Stripe still wants, by its names
    checking    text[] NOT NULL DEFAULT '{}',               -- what Stripe is verifying
    disabled    text NOT NULL DEFAULT '',                   -- Stripe's word for why it is off
    stopped     text NOT NULL DEFAULT '',                   -- why a platform operator stopped payouts; '' = they did not
    failures    integer NOT NULL DEFAULT 0,                 -- payouts that failed, since the last that did not
    next_at     timestamptz NOT NULL,                       -- the next payout
    checked_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX payout_account_due ON payout_account (next_at) WHERE ready AND stopped = '';
CREATE INDEX payout_account_checked ON payout_account (checked_at) WHERE stripe_account IS NOT NULL;

CREATE TABLE payout (
    id           uuid PRIMARY KEY,
    org_id       uuid NOT NULL REFERENCES org,
    stripe_account text NOT NULL,                              -- acct_…
    amount       bigint NOT NULL CHECK (amount > 0),         -- nano-units, whole cents
    currency     text NOT NULL,
    state        text NOT NULL CHECK (state IN ('pending', 'paid', 'failed')),
    stripe_transfer text UNIQUE,                             -- tr_…
    reversed     bigint NOT NULL DEFAULT 0 CHECK (reversed BETWEEN 0 AND amount),
    failure      text NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at   timestamptz
);
CREATE INDEX payout_org ON payout (org_id, id);
-- One at a time: what the next one pays depends on how this one ends.
CREATE UNIQUE INDEX payout_pending ON payout (org_id, currency) WHERE state = 'pending';

-- What came back of a payout.
CREATE TABLE payout_reversal (
    id          text PRIMARY KEY,                           -- trr_…
    payout_id   uuid NOT NULL REFERENCES payout,
    amount      bigint NOT NULL CHECK (amount > 0),
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX payout_reversal_payout ON payout_reversal (payout_id);
