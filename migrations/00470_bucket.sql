-- +goose Up
-- Buckets: S3-compatible stores of renters, with the credentials by which they are mounted. What they hold is not ours.
CREATE TABLE bucket (
    id             uuid PRIMARY KEY,
    org_id         uuid NOT NULL REFERENCES org,
    name           text NOT NULL,                           -- by which the organisation calls it
    endpoint       text NOT NULL,                           -- https://host[:port]
    region         text NOT NULL,
    bucket         text NOT NULL,                           -- its name in the store
    prefix         text NOT NULL,                           -- of all keys, without slashes at its ends; may be empty
    mode           text NOT NULL CHECK (mode IN ('rw', 'ro')),
    access_key_id  text NOT NULL,
    secret         bytea NOT NULL,                          -- the secret access key, sealed
    created_by     uuid NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    checked_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    problem        text NOT NULL DEFAULT '',                -- what the last check found; empty: nothing
    UNIQUE (org_id, name)
);
