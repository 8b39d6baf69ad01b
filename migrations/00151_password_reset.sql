-- +goose Up
-- Links with which somebody who forgot their password sets a new one.
CREATE TABLE password_reset (
    secret_hash  bytea PRIMARY KEY,             -- sha256 of the secret in the link
    user_id      uuid NOT NULL REFERENCES app_user,
    address      text NOT NULL,                 -- that it was sent to
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at   timestamptz NOT NULL,
    used_at      timestamptz
);
CREATE INDEX password_reset_user ON password_reset (user_id);
CREATE INDEX password_reset_expiry ON password_reset (expires_at);
