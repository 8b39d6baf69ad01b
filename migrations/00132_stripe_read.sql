-- +goose Up
-- How far Stripe's balance has been read without a gap. One row; it moves only when everything up to it is stored.
CREATE TABLE stripe_read (
    one           boolean PRIMARY KEY DEFAULT true CHECK (one),
    through       timestamptz NOT NULL,
    leased_until  timestamptz NOT NULL DEFAULT '-infinity'      -- the replica that reads has it until then
);
-- What was read before may have gaps: the first reading goes over the last 90 days again.
INSERT INTO stripe_read (through) VALUES (clock_timestamp() - interval '90 days');
