-- +goose Up
-- What a posting reads does not grow with a lease's past: only windows that end above its meter's watermark.
CREATE INDEX cluster_window_end ON cluster_window (cluster_id, coalesce(closed_ms, 9223372036854775807));
-- An operator with a frozen lease is paid nothing until an admin has looked.
CREATE INDEX lease_meter_frozen ON lease_meter (lease_id) WHERE frozen;
