-- +goose NO TRANSACTION
-- +goose Up
-- The rows of the ledger fit the kinds of 00704: this reads them without stopping writers.
SET lock_timeout = 0;
SET statement_timeout = 0;
ALTER TABLE ledger_account VALIDATE CONSTRAINT ledger_account_kind;
ALTER TABLE ledger_tx VALIDATE CONSTRAINT ledger_tx_kind;
RESET lock_timeout;
RESET statement_timeout;
