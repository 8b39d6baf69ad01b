-- +goose Up
-- What a balance was moved by within one transaction: 00701 needs it while the version before runs, which moves balances itself.
ALTER TABLE ledger_balance
    ADD COLUMN moved bigint NOT NULL DEFAULT 0,     -- nano-units, by transfers of moved_in
    ADD COLUMN moved_in xid8;                       -- the transaction that moved it last

-- A floor is where credit is used up and only what is reserved is left, or where the balance stands below that. An account without a
-- floor has neither credit nor a reserve. 00703 checks the rows that are there.
ALTER TABLE ledger_balance ADD CONSTRAINT ledger_balance_floored CHECK (
    CASE WHEN floor IS NULL THEN credit = 0 AND reserved = 0 ELSE reserved >= 0 AND floor = least(reserved - credit, amount) END) NOT VALID;

-- Balances and accounts stay. Of an account only retired_at changes, and created_at by hand.
CREATE TRIGGER ledger_balance_kept BEFORE DELETE ON ledger_balance FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_balance_no_truncate BEFORE TRUNCATE ON ledger_balance EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_account_kept BEFORE DELETE ON ledger_account FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_account_no_truncate BEFORE TRUNCATE ON ledger_account EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_account_frozen BEFORE UPDATE ON ledger_account FOR EACH ROW
    WHEN ((OLD.id, OLD.kind, OLD.owner, OLD.org_id, OLD.currency) IS DISTINCT FROM (NEW.id, NEW.kind, NEW.owner, NEW.org_id, NEW.currency))
    EXECUTE FUNCTION refuse_change();

-- A closed day has a seal. It covers what neither the chain nor the totals do: the ids and times of transfers, whose the accounts are and
-- since when, and the lines that organisations see. The job that closes days seals those that were closed before.
ALTER TABLE ledger_day
    ADD COLUMN through_line bigint,                 -- the last line of its entries, or of earlier ones; NULL: not sealed yet
    ADD COLUMN seal bytea;
DROP TRIGGER ledger_day_frozen ON ledger_day;
CREATE TRIGGER ledger_day_frozen BEFORE UPDATE ON ledger_day FOR EACH ROW
    WHEN ((OLD.n, OLD.after_batch, OLD.through_batch, OLD.txs, OLD.transfers, OLD.hash, OLD.closed_at, coalesce(OLD.through_line, NEW.through_line),
           coalesce(OLD.seal, NEW.seal))
          IS DISTINCT FROM (NEW.n, NEW.after_batch, NEW.through_batch, NEW.txs, NEW.transfers, NEW.hash, NEW.closed_at, NEW.through_line, NEW.seal))
    EXECUTE FUNCTION refuse_change();

-- What was booked on a closed day, by the kinds of the entries and of the accounts that they moved between.
CREATE TABLE ledger_day_flow (
    day bigint NOT NULL REFERENCES ledger_day,
    kind text NOT NULL,                             -- of the entry
    debit_kind text NOT NULL,
    credit_kind text NOT NULL,
    currency text NOT NULL,
    transfers bigint NOT NULL,
    amount numeric NOT NULL,
    PRIMARY KEY (day, kind, debit_kind, credit_kind, currency)
);
CREATE TRIGGER ledger_day_flow_immutable BEFORE UPDATE OR DELETE ON ledger_day_flow FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_day_flow_no_truncate BEFORE TRUNCATE ON ledger_day_flow EXECUTE FUNCTION refuse_change();

-- Times as seconds: how a time is written depends on the session.
-- +goose StatementBegin
CREATE FUNCTION ledger_day_seal(of_day bigint, last_line bigint) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT sha256(convert_to(concat_ws('|', d.n, d.after_batch, d.through_batch, d.txs, d.transfers, encode(d.hash, 'hex'),
                                       extract(epoch FROM d.closed_at), last_line, t.sums, l.sums), 'UTF8'))
    FROM ledger_day d,
    LATERAL (SELECT string_agg(b.sum, '' ORDER BY b.batch) AS sums FROM (
        SELECT k.batch, encode(sha256(convert_to(string_agg(concat_ws('|', f.id, f.tx_id, extract(epoch FROM f.created_at),
            f.debit_account_id, coalesce(x.org_id::text, '-'), extract(epoch FROM x.created_at),
            f.credit_account_id, coalesce(y.org_id::text, '-'), extract(epoch FROM y.created_at)), ',' ORDER BY f.id), 'UTF8')), 'hex') AS sum
        FROM ledger_link k
        JOIN ledger_transfer f ON f.tx_id = k.tx_id
        JOIN ledger_account x ON x.id = f.debit_account_id
        JOIN ledger_account y ON y.id = f.credit_account_id
        WHERE k.batch > d.after_batch AND k.batch <= d.through_batch
        GROUP BY k.batch) b) t,
    LATERAL (SELECT string_agg(p.sum, '' ORDER BY p.part) AS sums FROM (
        SELECT r.n / 1000 AS part, encode(sha256(convert_to(string_agg(concat_ws('|', r.n, r.org_id, r.tx_id, r.currency, r.change, r.after), ','
                                                               ORDER BY r.n), 'UTF8')), 'hex') AS sum
        FROM ledger_line r
        WHERE r.n > coalesce((SELECT e.through_line FROM ledger_day e WHERE e.n = d.n - 1), 0) AND r.n <= last_line
        GROUP BY r.n / 1000) p) l
    WHERE d.n = of_day
$$;
-- +goose StatementEnd
