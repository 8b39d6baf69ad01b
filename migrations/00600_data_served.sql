-- +goose Up
-- What was read from the store of volumes, by organisation and day (UTC): packs for which reads were signed, and what the
-- server itself read to show files.
CREATE TABLE data_served (
    org_id     uuid NOT NULL REFERENCES org,
    day        date NOT NULL,
    bytes      bigint NOT NULL DEFAULT 0 CHECK (bytes >= 0),         -- for people
    host_bytes bigint NOT NULL DEFAULT 0 CHECK (host_bytes >= 0),    -- for hosts
    PRIMARY KEY (org_id, day)
);

-- Byte microseconds that are billed at from_at in addition: of packs that nothing needed for a time, and that a commit then
-- kept. A server that does not know the column adds none.
ALTER TABLE data_level ADD COLUMN regained numeric(60,0) NOT NULL DEFAULT 0;
