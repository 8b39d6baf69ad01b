-- +goose Up
-- A program that is to get an API token, which a person grants in their browser (RFC 8628).
CREATE TABLE device_login (
    device_hash  bytea PRIMARY KEY,             -- sha256 of what the program polls with
    user_code    text NOT NULL,                 -- that the person enters, without the dash
    machine      text NOT NULL,                 -- what the program calls its machine: not to be trusted
    address      text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at   timestamptz NOT NULL,
    polled_at    timestamptz,
    answer       text CHECK (answer IN ('granted', 'denied')),
    user_id      uuid REFERENCES app_user,      -- who answered
    org_id       uuid REFERENCES org,
    scopes       text[] NOT NULL DEFAULT '{}',
    CHECK ((answer IS NULL) = (user_id IS NULL))
);
CREATE UNIQUE INDEX device_login_code ON device_login (user_code);
CREATE INDEX device_login_expires ON device_login (expires_at);
