-- +goose Up
-- Double-entry books. Every row of ledger_transfer balances by construction; rows are never changed or removed.
CREATE TABLE ledger_account (
    id          uuid PRIMARY KEY,
    kind        text NOT NULL,
    owner       uuid NOT NULL,                  -- org, or cluster for renter_hold; all zeros = the platform's own
    org_id      uuid REFERENCES org,            -- whose money it is, for holds too; NULL = the platform's
    currency    text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (kind, owner, currency),
    UNIQUE (id, currency)
);
CREATE INDEX ledger_account_org ON ledger_account (org_id) WHERE org_id IS NOT NULL;

-- Running balances, credit minus debit, of accounts that are read on the hot path. Accounts without a row (the
-- platform fee, clearing) are summed when asked for: a balance row would make every posting wait on every other.
CREATE TABLE ledger_balance (
    account_id  uuid PRIMARY KEY REFERENCES ledger_account,
    amount      bigint NOT NULL,                -- nano-units, credit positive
    floor       bigint                          -- the balance may not fall below it; NULL = no floor
        CHECK (floor IS NULL OR amount >= floor)
);

CREATE TABLE ledger_tx (
    id          uuid PRIMARY KEY,
    kind        text NOT NULL,                  -- 'topup', 'authorise', 'usage', 'hold_release', 'compensation', …
    key         text NOT NULL,                  -- what it books, once: 'topup:pi_…', 'usage:<cluster>:<n>'
    memo        text NOT NULL DEFAULT '',
    ref         text NOT NULL DEFAULT '',       -- prefixed id of the object it belongs to
    corrects    uuid REFERENCES ledger_tx,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX ledger_tx_key ON ledger_tx (key);
CREATE INDEX ledger_tx_ref ON ledger_tx (ref, id) WHERE ref <> '';

CREATE TABLE ledger_transfer (
    id                 uuid PRIMARY KEY,
    tx_id              uuid NOT NULL REFERENCES ledger_tx,
    debit_account_id   uuid NOT NULL,
    credit_account_id  uuid NOT NULL,
    currency           text NOT NULL,
    amount             bigint NOT NULL CHECK (amount > 0),   -- nano-units
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (debit_account_id <> credit_account_id),
    FOREIGN KEY (debit_account_id, currency) REFERENCES ledger_account (id, currency),
    FOREIGN KEY (credit_account_id, currency) REFERENCES ledger_account (id, currency)
);
CREATE INDEX ledger_transfer_tx ON ledger_transfer (tx_id);
CREATE INDEX ledger_transfer_debit ON ledger_transfer (debit_account_id, id);
CREATE INDEX ledger_transfer_credit ON ledger_transfer (credit_account_id, id);

CREATE VIEW ledger_entry AS
SELECT id AS transfer_id, tx_id, debit_account_id AS account_id, currency, -amount AS amount, created_at FROM ledger_transfer
UNION ALL
SELECT id, tx_id, credit_account_id, currency, amount, created_at FROM ledger_transfer;

-- +goose StatementBegin
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on % is refused: history never changes', TG_OP, TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$;
-- +goose StatementEnd

CREATE TRIGGER ledger_tx_immutable BEFORE UPDATE OR DELETE ON ledger_tx FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_tx_no_truncate BEFORE TRUNCATE ON ledger_tx EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_transfer_immutable BEFORE UPDATE OR DELETE ON ledger_transfer FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_transfer_no_truncate BEFORE TRUNCATE ON ledger_transfer EXECUTE FUNCTION refuse_change();
