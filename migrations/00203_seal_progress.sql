-- +goose Up
-- How far secrets at rest are sealed with the present MUSTER_SECRET while another one is accepted, too. At most one row.
CREATE TABLE seal_progress (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    mark       bytea NOT NULL,                              -- which secret: a fingerprint that tells nothing of it
    began_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    passed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    resealed   bigint NOT NULL,                             -- since began_at
    remaining  bigint NOT NULL                              -- sealed with the other secret after the last pass
);
