-- +goose NO TRANSACTION
-- +goose Up
-- The largest cluster that an organisation ran lately, found by looking once at each size.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS cluster_org_size;
CREATE INDEX CONCURRENTLY cluster_org_size ON cluster (org_id, (node_count * gpus_per_node), ended_at)
    WHERE ended_at IS NOT NULL AND running_at IS NOT NULL;
RESET lock_timeout;
RESET statement_timeout;
