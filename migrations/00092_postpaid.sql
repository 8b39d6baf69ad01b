-- +goose Up
-- How far an account may fall below zero: a wallet whose org pays afterwards. floor follows it, so that the database itself
-- guards the limit.
ALTER TABLE ledger_balance ADD COLUMN credit bigint NOT NULL DEFAULT 0 CHECK (credit >= 0);   -- nano-units

-- Orgs that pay afterwards, or did.
CREATE TABLE postpaid_org (
    org_id       uuid PRIMARY KEY REFERENCES org,
    currency     text NOT NULL,
    state        text NOT NULL CHECK (state IN ('on', 'ending', 'off')),   -- ending: nothing new is lent; what was used is still billed
    credit_limit bigint NOT NULL CHECK (credit_limit >= 0),                -- nano-units, used and not yet paid
    stopped      text NOT NULL DEFAULT '',                                 -- why nothing more is lent though it is on; '' = it is
    reason       text NOT NULL,                                            -- the platform operator's, of the last change
    changed_by   uuid NOT NULL,
    changed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
