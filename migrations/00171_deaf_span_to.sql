-- +goose NO TRANSACTION
-- +goose Up
-- A lease's deaf spans and gaps by their ends: those that touch time which is not decided yet.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS deaf_span_to;
CREATE INDEX CONCURRENTLY deaf_span_to ON deaf_span (lease_id, to_ms);
DROP INDEX CONCURRENTLY IF EXISTS rank_gap_to;
CREATE INDEX CONCURRENTLY rank_gap_to ON rank_gap (lease_id, to_ms);
RESET lock_timeout;
RESET statement_timeout;
