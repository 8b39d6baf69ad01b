-- +goose Up
-- Six-digit codes of an authenticator app as the second factor of a sign-in. A replica of the previous version signs people in without it.
CREATE TABLE user_totp (
    user_id      uuid PRIMARY KEY REFERENCES app_user,
    secret       bytea NOT NULL,                -- sealed for totp:<user>
    last_step    bigint NOT NULL DEFAULT 0,     -- of the last code that was accepted, in units of 30 s: a code works once
    confirmed_at timestamptz,                   -- NULL: set up, but not in use
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Codes that replace the app once each.
CREATE TABLE recovery_code (
    user_id   uuid NOT NULL REFERENCES app_user,
    code_hash bytea NOT NULL,                   -- sha256 of 80 random bits
    used_at   timestamptz,
    PRIMARY KEY (user_id, code_hash)
);

-- What somebody has begun and finishes with a second request within minutes: a sign-in whose password was right, or a ceremony with
-- a passkey.
CREATE TABLE sign_in_challenge (
    secret_hash bytea PRIMARY KEY,              -- sha256
    kind        text NOT NULL CHECK (kind IN ('code', 'passkey_add', 'passkey_sign_in')),
    user_id     uuid REFERENCES app_user,       -- NULL: not known yet
    data        bytea NOT NULL DEFAULT '',      -- of the passkey's ceremony
    failures    integer NOT NULL DEFAULT 0,
    expires_at  timestamptz NOT NULL
);
