-- +goose NO TRANSACTION
-- +goose Up
-- The rows of ledger_tx fit the kinds of 00320: this reads them without stopping writers.
SET lock_timeout = 0;
SET statement_timeout = 0;
ALTER TABLE ledger_tx VALIDATE CONSTRAINT ledger_tx_kind;
RESET lock_timeout;
RESET statement_timeout;
