-- +goose Up
-- What operators gave back to payers, by the hour in which they did: what a renter paid is what was earned from it less what came back.
-- What came back before this migration is not known by hours: it counts as paid for at most a week more.
ALTER TABLE operator_earning_hour ADD COLUMN returned bigint NOT NULL DEFAULT 0;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION add_operator_earnings() RETURNS trigger LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    everybody CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
BEGIN
    IF NOT EXISTS (SELECT FROM new_transfer t JOIN ledger_account a ON a.id = ANY (ARRAY[t.credit_account_id, t.debit_account_id])
                   WHERE a.kind = 'host_pending') THEN
        RETURN NULL;
    END IF;
    WITH moved AS (
        SELECT h.owner AS host, t.currency, CASE WHEN is_payer(p.kind) THEN p.org_id END AS payer, t.id, t.created_at, t.amount
        FROM new_transfer t
        JOIN ledger_account h ON h.id = t.credit_account_id AND h.kind = 'host_pending'
        JOIN ledger_account p ON p.id = t.debit_account_id
    ), both_keys AS (
        SELECT host, currency, payer, id, created_at, amount FROM moved WHERE payer IS NOT NULL
        UNION ALL
        SELECT host, currency, everybody, id, created_at, amount FROM moved
    ), hourly AS (
        INSERT INTO operator_earning_hour AS e (host_org_id, currency, payer_org_id, hour, earned, last_at, first_id, last_id)
        SELECT host, currency, payer, date_trunc('hour', created_at, 'UTC') AS hour, sum(amount)::bigint, max(created_at),
               (array_agg(id ORDER BY id))[1], (array_agg(id ORDER BY id DESC))[1]
        FROM both_keys GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
        ON CONFLICT (host_org_id, currency, payer_org_id, hour) DO UPDATE
        SET earned = e.earned + excluded.earned, last_at = greatest(e.last_at, excluded.last_at),
            first_id = least(e.first_id, excluded.first_id), last_id = greatest(e.last_id, excluded.last_id)
    )
    INSERT INTO operator_earning AS e (host_org_id, currency, payer_org_id, earned, returned, last_at)
    SELECT host, currency, payer, sum(amount)::bigint, 0, max(created_at)
    FROM both_keys GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (host_org_id, currency, payer_org_id) DO UPDATE
    SET earned = e.earned + excluded.earned, last_at = greatest(e.last_at, excluded.last_at);

    WITH moved AS (
        SELECT h.owner AS host, t.currency, p.org_id AS payer, t.id, t.created_at, t.amount
        FROM new_transfer t
        JOIN ledger_account h ON h.id = t.debit_account_id AND h.kind = 'host_pending'
        JOIN ledger_account p ON p.id = t.credit_account_id AND is_payer(p.kind) AND p.org_id IS NOT NULL
    ), both_keys AS (
        SELECT host, currency, payer, id, created_at, amount FROM moved
        UNION ALL
        SELECT host, currency, everybody, id, created_at, amount FROM moved
    ), hourly AS ( -- first_id and last_id of an hour without earnings bound nothing: last_at is earlier than all
        INSERT INTO operator_earning_hour AS e (host_org_id, currency, payer_org_id, hour, earned, returned, last_at, first_id, last_id)
        SELECT host, currency, payer, date_trunc('hour', created_at, 'UTC') AS hour, 0, sum(amount)::bigint, '-infinity',
               (array_agg(id ORDER BY id))[1], (array_agg(id ORDER BY id DESC))[1]
        FROM both_keys GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
        ON CONFLICT (host_org_id, currency, payer_org_id, hour) DO UPDATE SET returned = e.returned + excluded.returned
    )
    INSERT INTO operator_earning AS e (host_org_id, currency, payer_org_id, earned, returned, last_at)
    SELECT host, currency, payer, 0, sum(amount)::bigint, '-infinity'
    FROM both_keys GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (host_org_id, currency, payer_org_id) DO UPDATE SET returned = e.returned + excluded.returned;
    RETURN NULL;
END $$;
-- +goose StatementEnd
