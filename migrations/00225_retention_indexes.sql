-- +goose NO TRANSACTION
-- +goose Up
-- What a job deletes when its time is over is found without reading the rest. Rows of these tables arrive in the order of the columns, so
-- an index of block ranges is enough, and costs writers next to nothing.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS stripe_event_received;
CREATE INDEX CONCURRENTLY stripe_event_received ON stripe_event USING brin (received_at) WITH (pages_per_range = 32);
DROP INDEX CONCURRENTLY IF EXISTS segment_quarantine_received;
CREATE INDEX CONCURRENTLY segment_quarantine_received ON segment_quarantine USING brin (received_at) WITH (pages_per_range = 32);
DROP INDEX CONCURRENTLY IF EXISTS deaf_span_received;
CREATE INDEX CONCURRENTLY deaf_span_received ON deaf_span USING brin (received_at) WITH (pages_per_range = 32);
DROP INDEX CONCURRENTLY IF EXISTS operator_earning_hour_hour;
CREATE INDEX CONCURRENTLY operator_earning_hour_hour ON operator_earning_hour USING brin (hour) WITH (pages_per_range = 32);
RESET lock_timeout;
RESET statement_timeout;
