-- +goose Up
-- Every change of what Stripe holds for the platform, beside the entry of the books that says the same.
CREATE TABLE stripe_balance (
    id          text PRIMARY KEY,                   -- txn_…
    type        text NOT NULL,
    source      text NOT NULL DEFAULT '',           -- ch_…, re_…, …
    amount      bigint NOT NULL,                    -- nano-units before the fee; negative: out of it
    fee         bigint NOT NULL,
    currency    text NOT NULL,
    keys        text[] NOT NULL,                    -- of the entry it could match, most likely first
    state       text NOT NULL CHECK (state IN ('waiting', 'matched', 'suspense', 'resolved')),
    matched     text NOT NULL DEFAULT '',           -- key of the entry
    at          timestamptz NOT NULL,               -- Stripe's
    seen_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX stripe_balance_at ON stripe_balance (at);
CREATE INDEX stripe_balance_open ON stripe_balance (seen_at) WHERE state IN ('waiting', 'suspense');
CREATE UNIQUE INDEX stripe_balance_matched ON stripe_balance (matched) WHERE matched <> '';
