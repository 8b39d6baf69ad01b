-- +goose Up
-- Links that change a user's e-mail address, sent to the new one.
CREATE TABLE email_change (
    secret_hash bytea PRIMARY KEY,              -- sha256
    user_id     uuid NOT NULL REFERENCES app_user,
    was         text NOT NULL,                  -- the address when the link was sent
    address     text NOT NULL,
    expires_at  timestamptz NOT NULL
);
CREATE INDEX email_change_user ON email_change (user_id);
