-- +goose Up
-- Mail to be sent, written in the transaction of what it tells of. Holds no secrets.
CREATE TABLE mail (
    id          uuid PRIMARY KEY,
    user_id     uuid REFERENCES app_user,
    address     text NOT NULL,                      -- erasable
    subject     text NOT NULL,
    body        text NOT NULL,
    attempts    integer NOT NULL DEFAULT 0,
    next_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at     timestamptz,
    failed_at   timestamptz,                        -- given up; error says why
    error       text NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX mail_due ON mail (next_at) WHERE sent_at IS NULL AND failed_at IS NULL;

-- Notices made before mail existed are not mailed.
UPDATE notice SET mailed_at = created_at WHERE mailed_at IS NULL;
CREATE INDEX notice_unmailed ON notice (created_at) WHERE mailed_at IS NULL;
