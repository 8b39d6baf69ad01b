-- +goose NO TRANSACTION
-- +goose Up
-- What the scrub reads of packs: the oldest ones, those to try again, and those that the store does not have as they were.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS data_pack_read;
CREATE INDEX CONCURRENTLY data_pack_read ON data_pack (read_at) WHERE state = 'live' AND retry_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS data_pack_retry;
CREATE INDEX CONCURRENTLY data_pack_retry ON data_pack (retry_at) WHERE state = 'live' AND retry_at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS data_pack_lost;
CREATE INDEX CONCURRENTLY data_pack_lost ON data_pack (domain_id, n) WHERE lost_at IS NOT NULL;
RESET lock_timeout;
RESET statement_timeout;
