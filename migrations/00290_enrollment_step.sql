-- +goose Up
-- How far the installation on a host is that will use the token: for the page that shows it, nothing depends on it.
ALTER TABLE enrollment_token ADD COLUMN step text NOT NULL DEFAULT '', ADD COLUMN step_detail text NOT NULL DEFAULT '',
    ADD COLUMN step_failed boolean NOT NULL DEFAULT false, ADD COLUMN step_at timestamptz;
