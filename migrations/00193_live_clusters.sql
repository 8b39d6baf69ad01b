-- +goose NO TRANSACTION
-- +goose Up
-- What an org runs, found without its past clusters.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS cluster_live;
CREATE INDEX CONCURRENTLY cluster_live ON cluster (org_id) WHERE ended_at IS NULL;
RESET lock_timeout;
RESET statement_timeout;
