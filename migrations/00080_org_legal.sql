-- +goose Up
-- Who an org is before the law, for documents. Personal data of sole traders: a row is erased as a whole, and nothing
-- else keeps a copy.
CREATE TABLE org_legal (
    org_id      uuid PRIMARY KEY REFERENCES org,
    name        text NOT NULL CHECK (name <> ''),
    address     text[] NOT NULL CHECK (cardinality(address) BETWEEN 1 AND 6),
    country     text NOT NULL CHECK (country ~ '^[A-Z]{2}$'),    -- ISO 3166-1 alpha-2
    vat_id      text NOT NULL DEFAULT '',                        -- without spaces; '' = none
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
