-- +goose Up
-- When the figures beside were measured: the best of a week counts, so that one slow partner spoils no host's.
ALTER TABLE host_status ADD COLUMN net_up_at timestamptz, ADD COLUMN net_down_at timestamptz;
ALTER TABLE fabric ADD COLUMN busbw_at timestamptz;
