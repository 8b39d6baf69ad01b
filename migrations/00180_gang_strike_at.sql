-- +goose NO TRANSACTION
-- +goose Up
-- Placement asks which hosts were struck lately. Waiting for transactions that began earlier may take longer than other
-- locks are waited for.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS gang_strike_at;
CREATE INDEX CONCURRENTLY gang_strike_at ON gang_strike (at) WHERE kind <> 'doubt';
RESET lock_timeout;
RESET statement_timeout;
