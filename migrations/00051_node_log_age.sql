-- +goose Up
-- Kept logs are dropped by age.
CREATE INDEX node_log_created_at ON node_log (created_at);
