-- +goose Up
-- The platform's fee on what an operator's hosts earn, in millionths of it, where it is not the usual one. Leases keep what they
-- were rented at.
CREATE TABLE org_fee (
    org_id      uuid PRIMARY KEY REFERENCES org,
    fee_ppm     integer NOT NULL CHECK (fee_ppm BETWEEN 0 AND 1000000),
    changed_by  uuid NOT NULL,
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
