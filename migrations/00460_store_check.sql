-- +goose Up
-- The store is checked in rounds: packs are looked for and read back, oldest first, and the store is listed from its first key to
-- its last one.
ALTER TABLE data_pack
    ADD COLUMN read_at   timestamptz NOT NULL DEFAULT statement_timestamp(), -- when it was last read back whole, or granted
    ADD COLUMN damaged   boolean NOT NULL DEFAULT false,                     -- of lost_at: the store has other bytes
    ADD COLUMN silent_at timestamptz,                                        -- since when the store does not answer for it
    ADD COLUMN retry_at  timestamptz;                                        -- lost, damaged or silent: when it is read again

-- How far the rounds are: one row.
CREATE TABLE data_check (
    one          boolean PRIMARY KEY DEFAULT true CHECK (one),
    read_through timestamptz NOT NULL DEFAULT statement_timestamp(),         -- the moment up to which read_credit is counted
    read_credit  double precision NOT NULL DEFAULT 0,                        -- bytes to read back now; below 0: were read early
    list_after   text NOT NULL DEFAULT '',                                   -- the last key that the round has compared
    list_began   timestamptz,                                                -- NULL: no round is under way
    list_ended   timestamptz,                                                -- when the last whole round ended
    whole_from   timestamptz,                                                -- and when it began
    failing_at   timestamptz,                                                -- since when the store does not list
    strange      bigint NOT NULL DEFAULT 0,                                  -- keys of the round that are nobody's here
    example      text NOT NULL DEFAULT '',                                   -- the first one of them
    restored_at  timestamptz                                                 -- when a restored database was last adopted
);
INSERT INTO data_check DEFAULT VALUES;

-- Objects below a data domain that no row knows: of a late upload, or of hours that a restored database has lost.
CREATE TABLE data_stray (
    domain_id uuid NOT NULL REFERENCES data_domain,
    n         bigint NOT NULL,
    bytes     bigint NOT NULL,
    stored_at timestamptz NOT NULL,                                          -- by the store's clock
    found_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    try_at    timestamptz NOT NULL,                                          -- when it is next to be deleted
    PRIMARY KEY (domain_id, n)
);
CREATE INDEX data_stray_try ON data_stray (try_at);
