-- +goose NO TRANSACTION
-- +goose Up
-- Each rent asks which starts of its organisation are under way. Waiting for transactions that began earlier may take longer
-- than other locks are waited for.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS cluster_org_starting;
CREATE INDEX CONCURRENTLY cluster_org_starting ON cluster (org_id) WHERE ended_at IS NULL AND running_at IS NULL;
RESET lock_timeout;
RESET statement_timeout;
