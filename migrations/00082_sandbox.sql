-- +goose Up
-- What the sandbox's own Stripe (internal/stripetest) remembers, for all replicas that share it: a row per object.
-- Versions rise in the order in which transactions commit: they are taken under a lock.
CREATE SEQUENCE sandbox_version;

CREATE TABLE sandbox_object (
    kind        text NOT NULL,                  -- 'payments', 'customers', …
    id          text NOT NULL,
    body        text,                           -- JSON; NULL: it is gone
    made        bigint NOT NULL,                -- its first version
    version     bigint NOT NULL,
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (kind, id)
);
CREATE UNIQUE INDEX sandbox_object_version ON sandbox_object (version);
CREATE INDEX sandbox_object_gone ON sandbox_object (changed_at) WHERE body IS NULL;
