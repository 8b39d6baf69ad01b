-- +goose NO TRANSACTION
-- +goose Up
-- Waiting for transactions that began earlier may take longer than other locks are waited for.
SET lock_timeout = 0;
SET statement_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS ledger_account_live;
CREATE INDEX CONCURRENTLY ledger_account_live ON ledger_account (org_id) WHERE org_id IS NOT NULL AND retired_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS ledger_tx_corrections;
CREATE INDEX CONCURRENTLY ledger_tx_corrections ON ledger_tx (ref, id) WHERE corrects IS NOT NULL;
RESET lock_timeout;
RESET statement_timeout;
ALTER TABLE budget VALIDATE CONSTRAINT budget_committed_check;
