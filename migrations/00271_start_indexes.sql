-- +goose NO TRANSACTION
-- +goose Up
-- Each rent reads the starts under way: its organisation's, and all that no payment covers. What an organisation paid is read by
-- hour. Waiting for transactions that began earlier may take longer than other locks are waited for.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS cluster_start;
CREATE INDEX CONCURRENTLY cluster_start ON cluster (org_id) WHERE state = 'provisioning' AND start_from IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS cluster_start_new;
CREATE INDEX CONCURRENTLY cluster_start_new ON cluster (id) WHERE state = 'provisioning' AND start_from IS NOT NULL AND start_new;
DROP INDEX CONCURRENTLY IF EXISTS operator_earning_payer;
CREATE INDEX CONCURRENTLY operator_earning_payer ON operator_earning_hour (payer_org_id, currency, hour) INCLUDE (earned);
-- Which hosts of an organisation list GPUs of a model: see host_heir.
DROP INDEX CONCURRENTLY IF EXISTS gpu_model;
CREATE INDEX CONCURRENTLY gpu_model ON gpu (model, created_at) WHERE removed_at IS NULL;
RESET lock_timeout;
RESET statement_timeout;
