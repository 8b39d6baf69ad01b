-- +goose Up
-- Add credit by itself: amount whenever what is available falls below threshold, at most daily_cap in 24 hours.
CREATE TABLE auto_topup (
    org_id      uuid PRIMARY KEY REFERENCES org,
    user_id     uuid NOT NULL REFERENCES app_user,      -- who set it; receipts go there
    enabled     boolean NOT NULL,
    threshold   bigint NOT NULL CHECK (threshold > 0),  -- nano-units
    amount      bigint NOT NULL CHECK (amount > 0),     -- nano-units, whole cents
    daily_cap   bigint NOT NULL CHECK (daily_cap >= amount),
    stopped     text NOT NULL DEFAULT '',               -- why it was switched off by itself, in words for the org
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX topup_automatic ON topup (org_id, created_at) WHERE automatic;
