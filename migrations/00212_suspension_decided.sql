-- +goose NO TRANSACTION
-- +goose Up
-- Suspensions by the time of their decision: what of the last days was not billed, by renter and operator.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS suspension_decided;
CREATE INDEX CONCURRENTLY suspension_decided ON suspension (decided_at);
RESET lock_timeout;
RESET statement_timeout;
