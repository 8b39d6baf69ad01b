-- +goose NO TRANSACTION
-- +goose Up
-- Connections whose keys are revoked are looked for every few seconds.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS host_key_revoked;
CREATE INDEX CONCURRENTLY host_key_revoked ON host_key (host_id) WHERE revoked_at IS NOT NULL;
RESET lock_timeout;
RESET statement_timeout;
