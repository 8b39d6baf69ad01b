-- +goose Up
-- What operators earned, added up as it is booked: nobody adds up a week of postings again to know what is still in the
-- holdback. payer_org_id is the renter (or the operator whose bond paid) an amount came from, as payout_earned_from defines it;
-- all zeros: from everybody, the platform included. All rows of an operator are written under the lock of its host_pending
-- balance, by the triggers below.
CREATE TABLE operator_earning (
    host_org_id   uuid NOT NULL,
    currency      text NOT NULL,
    payer_org_id  uuid NOT NULL,
    earned        bigint NOT NULL,      -- ever, nano-units
    returned      bigint NOT NULL,      -- given back to the payer, ever
    last_at       timestamptz NOT NULL, -- of the newest amount earned; -infinity: none was
    PRIMARY KEY (host_org_id, currency, payer_org_id)
);
-- The same by the hours (UTC) in which it was earned. first_id and last_id bound the transfers of the hour: whoever asks for
-- a part of an hour reads those.
CREATE TABLE operator_earning_hour (
    host_org_id   uuid NOT NULL,
    currency      text NOT NULL,
    payer_org_id  uuid NOT NULL,
    hour          timestamptz NOT NULL,
    earned        bigint NOT NULL,
    last_at       timestamptz NOT NULL,
    first_id      uuid NOT NULL,
    last_id       uuid NOT NULL,
    PRIMARY KEY (host_org_id, currency, payer_org_id, hour)
);
-- Operators whose earnings of before the triggers were added, so that a migration that was cut off goes on where it was.
CREATE TABLE operator_earning_filled (
    account_id  uuid PRIMARY KEY
);

-- +goose StatementBegin
CREATE FUNCTION is_payer(kind text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT kind IN ('renter_hold', 'renter_wallet', 'bond_hold')
$$;
-- +goose StatementEnd

-- Accounts are found by their ids whatever the planner guesses of the number of new transfers.
-- +goose StatementBegin
CREATE FUNCTION add_operator_earnings() RETURNS trigger LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
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
        SELECT h.owner AS host, t.currency, p.org_id AS payer, t.amount
        FROM new_transfer t
        JOIN ledger_account h ON h.id = t.debit_account_id AND h.kind = 'host_pending'
        JOIN ledger_account p ON p.id = t.credit_account_id AND is_payer(p.kind) AND p.org_id IS NOT NULL
    ), both_keys AS (
        SELECT host, currency, payer, amount FROM moved
        UNION ALL
        SELECT host, currency, everybody, amount FROM moved
    )
    INSERT INTO operator_earning AS e (host_org_id, currency, payer_org_id, earned, returned, last_at)
    SELECT host, currency, payer, 0, sum(amount)::bigint, '-infinity'
    FROM both_keys GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (host_org_id, currency, payer_org_id) DO UPDATE SET returned = e.returned + excluded.returned;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- What an operator earned from a payer (all zeros: from everybody) after a moment. Whole hours are read from their sums, the
-- hour that the moment is in from its transfers, if any of them is later.
-- +goose StatementBegin
CREATE FUNCTION operator_earned_after(host_org uuid, payer_org uuid, of_currency text, after_at timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (coalesce((SELECT sum(e.earned) FROM operator_earning_hour e
                      WHERE e.host_org_id = host_org AND e.currency = of_currency AND e.payer_org_id = payer_org AND e.hour > after_at), 0)
          + coalesce((SELECT sum(t.amount)
                      FROM operator_earning_hour e
                      JOIN ledger_account h ON h.kind = 'host_pending' AND h.owner = e.host_org_id AND h.currency = e.currency
                      JOIN ledger_transfer t ON t.credit_account_id = h.id AND t.id >= e.first_id AND t.id <= e.last_id
                      JOIN ledger_account p ON p.id = t.debit_account_id
                      WHERE e.host_org_id = host_org AND e.currency = of_currency AND e.payer_org_id = payer_org
                        AND e.hour <= after_at AND e.hour > after_at - interval '1 hour' AND e.last_at > after_at
                        AND t.created_at > after_at AND t.created_at < e.hour + interval '1 hour'
                        AND (payer_org = '00000000-0000-0000-0000-000000000000' OR is_payer(p.kind) AND p.org_id = payer_org)), 0))::bigint
$$;
-- +goose StatementEnd

-- From here on everything is added. The lock waits for transactions that have inserted already; clocks that stood ahead count.
LOCK TABLE ledger_transfer IN SHARE ROW EXCLUSIVE MODE;
CREATE TRIGGER ledger_transfer_earnings AFTER INSERT ON ledger_transfer REFERENCING NEW TABLE AS new_transfer
    FOR EACH STATEMENT EXECUTE FUNCTION add_operator_earnings();
CREATE TABLE operator_earning_since AS
SELECT greatest(clock_timestamp(), (SELECT max(t.created_at) FROM (SELECT created_at FROM ledger_transfer ORDER BY id DESC LIMIT 10000) t)) AS at;
