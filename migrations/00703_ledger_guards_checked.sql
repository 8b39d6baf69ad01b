-- +goose NO TRANSACTION
-- +goose Up
-- The constraint of 00700 is checked without stopping writers. Should an old row break it, the server starts all the same: the constraint
-- stays as it is, for new rows, and the log of PostgreSQL names it.
SET lock_timeout = 0;
SET statement_timeout = 0;
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE ledger_balance VALIDATE CONSTRAINT ledger_balance_floored;
EXCEPTION WHEN check_violation THEN
    RAISE WARNING 'ledger_balance has rows that break ledger_balance_floored';
END $$;
-- +goose StatementEnd
RESET lock_timeout;
RESET statement_timeout;
