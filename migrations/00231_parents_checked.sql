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
             WHERE NOT convalidated
               AND conname IN ('lease_cluster', 'lease_node', 'node_current_lease', 'cluster_window_cluster', 'rank_gap_lease',
                               'deaf_span_lease', 'gang_strike_cluster', 'gang_strike_against', 'lease_bond_of_cluster',
                               'standby_of_cluster', 'standby_relief_of_cluster', 'service_credit_cluster',
                               'node_replacement_lost_lease', 'ledger_account_kind', 'ledger_tx_kind')
             ORDER BY conname LOOP
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
