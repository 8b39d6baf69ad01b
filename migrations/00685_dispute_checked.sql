-- +goose NO TRANSACTION
-- +goose Up
-- Each constraint is checked without stopping writers. Should an old row break one, the server starts all the same: the constraint stays
-- as it is, for new rows, and the log of PostgreSQL names it.
SET lock_timeout = 0;
SET statement_timeout = 0;
-- +goose StatementBegin
DO $$
DECLARE
    c record;
BEGIN
    FOR c IN SELECT conname FROM pg_constraint
             WHERE NOT convalidated AND conname IN ('dispute_held_bond', 'dispute_held_amount', 'dispute_debt_lost') LOOP
        BEGIN
            EXECUTE format('ALTER TABLE dispute VALIDATE CONSTRAINT %I', c.conname);
        EXCEPTION WHEN check_violation THEN
            RAISE WARNING 'dispute has rows that break %', c.conname;
        END;
    END LOOP;
END $$;
-- +goose StatementEnd
RESET lock_timeout;
RESET statement_timeout;
