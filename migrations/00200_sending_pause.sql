-- +goose Up
-- While this row is there, nothing that moves money is sent to Stripe. Who set and lifted it, when and why is in the audit trail.
CREATE TABLE sending_pause (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    reason   text NOT NULL CHECK (reason <> ''),
    user_id  uuid,                                       -- NULL: the platform itself
    since    timestamptz NOT NULL DEFAULT clock_timestamp()
);
