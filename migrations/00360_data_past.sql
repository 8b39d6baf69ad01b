-- +goose Up
-- Erased data domains are in nobody's way: they are neither swept nor metered once nothing of them is left.
ALTER TABLE data_domain ADD COLUMN emptied_at timestamptz;              -- erased, and the store has nothing of it
-- When the meter is due; NULL: its domain is erased and nothing is owed. Meters that exist are due at once.
ALTER TABLE data_meter ADD COLUMN next_at timestamptz DEFAULT statement_timestamp();
