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
    FOR c IN SELECT conname, conrelid::regclass AS of_table FROM pg_constraint
             WHERE NOT convalidated AND conname IN ('usage_segment_lease', 'ledger_account_currency', 'lease_currency', 'lease_share',
                                                    'lease_meter_money', 'lease_meter_time') LOOP
        BEGIN
            EXECUTE format('ALTER TABLE %s VALIDATE CONSTRAINT %I', c.of_table, c.conname);
        EXCEPTION WHEN check_violation OR foreign_key_violation THEN
            RAISE WARNING '% has rows that break %', c.of_table, c.conname;
        END;
    END LOOP;
END $$;
-- +goose StatementEnd
RESET lock_timeout;
RESET statement_timeout;
