-- +goose Up
-- What Stripe says it holds for the platform, by currency, as it was asked last, beside the changes that were read until then.
-- Amounts are nano-units and may be below zero.
CREATE TABLE stripe_funds (
    currency   text PRIMARY KEY CHECK (currency ~ '^[A-Z]{3}$'),
    available  bigint NOT NULL,
    pending    bigint NOT NULL,                           -- on its way into available
    reserved   bigint NOT NULL,                           -- kept by Stripe for connected accounts below zero; in none of the others
    read       bigint NOT NULL,                           -- sum of the changes of Stripe's balance that are stored
    asked_at   timestamptz NOT NULL,
    off_since  timestamptz,                               -- since when available + pending is not read; NULL: it is
    told_at    timestamptz                                -- when administrators were notified of it
);
