-- +goose NO TRANSACTION
-- +goose Up
-- What jobs and grants read of data domains and meters: each index has only what is living, unpaid or due.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS data_domain_left;
CREATE INDEX CONCURRENTLY data_domain_left ON data_domain (id) WHERE emptied_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS data_domain_living;
CREATE INDEX CONCURRENTLY data_domain_living ON data_domain (org_id) WHERE erased_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS data_meter_due;
CREATE INDEX CONCURRENTLY data_meter_due ON data_meter (next_at) WHERE next_at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS data_meter_unpaid;
CREATE INDEX CONCURRENTLY data_meter_unpaid ON data_meter (domain_id) INCLUDE (unpaid_since) WHERE unpaid_since IS NOT NULL;
RESET lock_timeout;
RESET statement_timeout;
