-- +goose Up
-- What identifies the history that this database holds. One row.
CREATE TABLE control (
    one           boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- Raised when an operator adopts a restored database. Hosts follow the highest that they have seen.
    epoch         bigint NOT NULL CHECK (epoch >= 1),
    -- The database as the last server saw it; NULL: none has yet. A restore or a copy changes at least one of them.
    system_id     bigint,                                -- of the PostgreSQL cluster
    database_oid  bigint,
    timeline      bigint                                 -- of its write-ahead log; a promoted standby begins another one, too
);
INSERT INTO control (epoch) VALUES (1);

-- Restored databases that an operator adopted.
CREATE TABLE restore (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    backup_at    timestamptz NOT NULL,                   -- the newest moment that the restored database knows
    adopted_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    epoch        bigint NOT NULL,                        -- since
    hosts        bigint NOT NULL,                        -- that sell nothing until they have reported what runs on them
    finished_at  timestamptz                             -- NULL: the comparison with Stripe is not complete
);

-- What Stripe did after the backup and the restored database did not know.
CREATE TABLE restore_finding (
    restore_id  bigint NOT NULL REFERENCES restore,
    object      text NOT NULL,                           -- Stripe's id
    kind        text NOT NULL,                           -- payment, refund, dispute, transfer, payout, other
    outcome     text NOT NULL CHECK (outcome IN ('booked', 'open', 'foreign')),
    org_id      uuid,
    amount      bigint NOT NULL,                         -- nano-units; what it changed of Stripe's balance, or would
    currency    text NOT NULL,
    note        text NOT NULL DEFAULT '',
    found_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (restore_id, object)
);
