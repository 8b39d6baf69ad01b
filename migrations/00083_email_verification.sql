-- +goose Up
-- Links that prove an e-mail address. Who has an account already is trusted as before.
UPDATE app_user SET email_verified_at = created_at WHERE email_verified_at IS NULL;

CREATE TABLE email_verification (
    secret_hash  bytea PRIMARY KEY,             -- sha256 of the secret in the link
    user_id      uuid NOT NULL REFERENCES app_user,
    address      text NOT NULL,                 -- that it was sent to
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at   timestamptz NOT NULL,
    used_at      timestamptz
);
CREATE INDEX email_verification_user ON email_verification (user_id);
CREATE INDEX email_verification_expiry ON email_verification (expires_at);
