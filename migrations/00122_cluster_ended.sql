-- +goose NO TRANSACTION
-- +goose Up
-- An organisation's clusters by their end: failed starts of the last hour.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS cluster_org_ended;
CREATE INDEX CONCURRENTLY cluster_org_ended ON cluster (org_id, ended_at) WHERE ended_at IS NOT NULL;
RESET lock_timeout;
RESET statement_timeout;
