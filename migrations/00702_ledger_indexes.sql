-- +goose NO TRANSACTION
-- +goose Up
-- The balances that lend or are claimed: few, and the check reads all of them. And the batches by their time: an entry belongs to the
-- day in which its batch was made.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS ledger_balance_claimed;
CREATE INDEX CONCURRENTLY ledger_balance_claimed ON ledger_balance (account_id) WHERE credit <> 0 OR reserved <> 0;
DROP INDEX CONCURRENTLY IF EXISTS ledger_batch_made;
CREATE INDEX CONCURRENTLY ledger_batch_made ON ledger_batch (made_at, n);
RESET lock_timeout;
RESET statement_timeout;
