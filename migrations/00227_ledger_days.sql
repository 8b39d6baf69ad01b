-- +goose Up
-- Frozen totals of the ledger, so that checking it does not read all of its history: each row closes the batches of the chain of at most
-- a day. They are derived from entries that never change, and are verified against them again and again, one day after the other.
CREATE TABLE ledger_day (
    n bigint PRIMARY KEY,
    after_batch bigint NOT NULL,                    -- the last batch of the day before; 0: none
    through_batch bigint NOT NULL UNIQUE REFERENCES ledger_batch (n),
    txs bigint NOT NULL,
    transfers bigint NOT NULL,
    hash bytea NOT NULL,                            -- of through_batch: it covers every entry up to it
    closed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    checked_at timestamptz NOT NULL DEFAULT clock_timestamp(), -- when its entries were last compared with these totals
    problem text NOT NULL DEFAULT '',               -- what did not agree then
    CHECK (through_batch > after_batch),
    CHECK (n > 0)
);
CREATE TABLE ledger_day_account (
    account_id uuid NOT NULL REFERENCES ledger_account,
    day bigint NOT NULL REFERENCES ledger_day,
    change numeric NOT NULL,                        -- credits less debits of the day
    after numeric NOT NULL,                         -- of all days up to it
    PRIMARY KEY (account_id, day)
);
CREATE INDEX ledger_day_account_day ON ledger_day_account (day);
CREATE TABLE ledger_day_kind (
    day bigint NOT NULL REFERENCES ledger_day,
    kind text NOT NULL,
    currency text NOT NULL,
    change numeric NOT NULL,
    PRIMARY KEY (day, kind, currency)
);
CREATE TRIGGER ledger_day_frozen BEFORE UPDATE ON ledger_day FOR EACH ROW
    WHEN ((OLD.n, OLD.after_batch, OLD.through_batch, OLD.txs, OLD.transfers, OLD.hash, OLD.closed_at)
          IS DISTINCT FROM (NEW.n, NEW.after_batch, NEW.through_batch, NEW.txs, NEW.transfers, NEW.hash, NEW.closed_at))
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_day_kept BEFORE DELETE ON ledger_day FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_day_no_truncate BEFORE TRUNCATE ON ledger_day EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_day_account_immutable BEFORE UPDATE OR DELETE ON ledger_day_account FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_day_account_no_truncate BEFORE TRUNCATE ON ledger_day_account EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_day_kind_immutable BEFORE UPDATE OR DELETE ON ledger_day_kind FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_day_kind_no_truncate BEFORE TRUNCATE ON ledger_day_kind EXECUTE FUNCTION refuse_change();
