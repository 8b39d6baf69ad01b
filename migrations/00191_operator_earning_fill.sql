-- +goose NO TRANSACTION
-- +goose Up
-- What was booked before 00190, operator by operator: the sum is made without a lock, since those transfers never change, and
-- added under the lock of the operator's balance, as every posting is.
SET lock_timeout = 0;
SET statement_timeout = 0;
-- +goose StatementBegin
DO $$
DECLARE
    a record;
    everybody CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
    since CONSTANT timestamptz := (SELECT at FROM operator_earning_since);
BEGIN
    CREATE TEMPORARY TABLE IF NOT EXISTS old_earning (payer uuid, hour timestamptz, earned bigint, last_at timestamptz, first_id uuid, last_id uuid);
    CREATE TEMPORARY TABLE IF NOT EXISTS old_return (payer uuid, returned bigint);
    COMMIT;
    FOR a IN SELECT id, owner, currency FROM ledger_account x
             WHERE kind = 'host_pending' AND NOT EXISTS (SELECT FROM operator_earning_filled f WHERE f.account_id = x.id) LOOP
        TRUNCATE old_earning, old_return;
        INSERT INTO old_earning
        SELECT k.payer, date_trunc('hour', t.created_at, 'UTC'), sum(t.amount)::bigint, max(t.created_at), min(t.id::text COLLATE "C")::uuid, max(t.id::text COLLATE "C")::uuid
        FROM ledger_transfer t JOIN ledger_account p ON p.id = t.debit_account_id
        CROSS JOIN LATERAL (SELECT everybody AS payer UNION ALL SELECT p.org_id WHERE is_payer(p.kind) AND p.org_id IS NOT NULL) k
        WHERE t.credit_account_id = a.id AND t.created_at <= since
        GROUP BY 1, 2;
        INSERT INTO old_return
        SELECT k.payer, sum(t.amount)::bigint
        FROM ledger_transfer t JOIN ledger_account p ON p.id = t.credit_account_id AND is_payer(p.kind) AND p.org_id IS NOT NULL
        CROSS JOIN LATERAL (SELECT everybody AS payer UNION ALL SELECT p.org_id) k
        WHERE t.debit_account_id = a.id AND t.created_at <= since
        GROUP BY 1;
        PERFORM FROM ledger_balance WHERE account_id = a.id FOR UPDATE;
        INSERT INTO operator_earning_hour AS e (host_org_id, currency, payer_org_id, hour, earned, last_at, first_id, last_id)
        SELECT a.owner, a.currency, payer, hour, earned, last_at, first_id, last_id FROM old_earning
        ON CONFLICT (host_org_id, currency, payer_org_id, hour) DO UPDATE
        SET earned = e.earned + excluded.earned, last_at = greatest(e.last_at, excluded.last_at),
            first_id = least(e.first_id, excluded.first_id), last_id = greatest(e.last_id, excluded.last_id);
        INSERT INTO operator_earning AS e (host_org_id, currency, payer_org_id, earned, returned, last_at)
        SELECT a.owner, a.currency, payer, sum(earned)::bigint, 0, max(last_at) FROM old_earning GROUP BY payer
        ON CONFLICT (host_org_id, currency, payer_org_id) DO UPDATE
        SET earned = e.earned + excluded.earned, last_at = greatest(e.last_at, excluded.last_at);
        INSERT INTO operator_earning AS e (host_org_id, currency, payer_org_id, earned, returned, last_at)
        SELECT a.owner, a.currency, payer, 0, returned, '-infinity' FROM old_return
        ON CONFLICT (host_org_id, currency, payer_org_id) DO UPDATE SET returned = e.returned + excluded.returned;
        INSERT INTO operator_earning_filled (account_id) VALUES (a.id);
        COMMIT;
    END LOOP;
    DROP TABLE old_earning, old_return;
END $$;
-- +goose StatementEnd
-- As before, from the sums.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION payout_earned_from(host_org uuid, renter_org uuid, of_currency text, until_at timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT e.earned - e.returned FROM operator_earning e
                     WHERE e.host_org_id = host_org AND e.currency = of_currency AND e.payer_org_id = renter_org), 0)
         - operator_earned_after(host_org, renter_org, of_currency, until_at)
$$;
-- +goose StatementEnd
RESET lock_timeout;
RESET statement_timeout;
