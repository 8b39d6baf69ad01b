-- +goose NO TRANSACTION
-- +goose Up
-- What grants read of an organisation's data domains: only those of which the store may have something.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS data_domain_filled;
CREATE INDEX CONCURRENTLY data_domain_filled ON data_domain (org_id) WHERE emptied_at IS NULL;
RESET lock_timeout;
RESET statement_timeout;
