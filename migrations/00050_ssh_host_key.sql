-- +goose Up
-- The SSH gateway's host keys: one per algorithm for all replicas, so that clients see the same wherever they land.
CREATE TABLE ssh_host_key (
    algorithm   text PRIMARY KEY,
    sealed      bytea NOT NULL, -- PKCS #8, sealed for "ssh_host_key:<algorithm>"
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
