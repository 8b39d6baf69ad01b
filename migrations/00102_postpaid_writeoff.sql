-- +goose Up
-- Invoices that a platform operator gives up, each with the last decision on it. It is said to Stripe first, and booked when
-- Stripe says that the invoice is uncollectible.
CREATE TABLE postpaid_writeoff (
    invoice_id  text PRIMARY KEY REFERENCES postpaid_invoice,
    org_id      uuid NOT NULL REFERENCES org,
    state       text NOT NULL CHECK (state IN ('asked', 'refused', 'overtaken', 'booked', 'recovered', 'voided')),
    asked       integer NOT NULL DEFAULT 1,                 -- how often it was said to Stripe, each time under a key of its own
    reason      text NOT NULL,                              -- the operator's
    user_id     uuid NOT NULL,                              -- who decided
    decided_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    failure     text NOT NULL DEFAULT '',                   -- why Stripe refused it
    amount      bigint NOT NULL DEFAULT 0 CHECK (amount >= 0),  -- nano-units that are not collected, with tax; 0: not booked
    tax         bigint NOT NULL DEFAULT 0 CHECK (tax BETWEEN 0 AND amount),
    tax_base    bigint NOT NULL DEFAULT 0,                  -- nano-units without tax that the tax was on
    booked_at   timestamptz,
    closed_at   timestamptz                                 -- paid or voided after all
);
CREATE INDEX postpaid_writeoff_org ON postpaid_writeoff (org_id);
