-- +goose Up
-- Passkeys (WebAuthn) of users: one proves the device and the person, in place of the password and the code.
CREATE TABLE passkey (
    id            uuid PRIMARY KEY,
    user_id       uuid NOT NULL REFERENCES app_user,
    credential_id bytea NOT NULL,
    credential    bytea NOT NULL,               -- JSON of the WebAuthn library: public key, flags, signature counter
    name          text NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_used_at  timestamptz
);
CREATE UNIQUE INDEX passkey_credential ON passkey (credential_id);
CREATE INDEX passkey_user ON passkey (user_id);
