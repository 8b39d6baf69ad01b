-- +goose NO TRANSACTION
-- +goose Up
-- The leases of a period are found without those that ended before it, and what an organisation earned lately from few of its leases
-- without the others' postings.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS lease_renter_ended;
CREATE INDEX CONCURRENTLY lease_renter_ended ON lease (renter_org_id, ended_at) WHERE ended_at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS lease_operator_ended;
CREATE INDEX CONCURRENTLY lease_operator_ended ON lease (host_org_id, ended_at) WHERE ended_at IS NOT NULL;
RESET lock_timeout;
RESET statement_timeout;
