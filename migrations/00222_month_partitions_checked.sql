-- +goose NO TRANSACTION
-- +goose Up
SET lock_timeout = 0;
SET statement_timeout = 0;
ALTER TABLE usage_segment VALIDATE CONSTRAINT usage_segment_first;
ALTER TABLE cluster_event VALIDATE CONSTRAINT cluster_event_first;
ALTER TABLE audit_event VALIDATE CONSTRAINT audit_event_first;
RESET lock_timeout;
RESET statement_timeout;
