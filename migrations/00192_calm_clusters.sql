-- +goose Up
-- Until when the watchdog may pass over a cluster in whose rows nothing asks for attention. The past: it looks at everything.
ALTER TABLE cluster ADD COLUMN full_look_at timestamptz NOT NULL DEFAULT 'epoch';
