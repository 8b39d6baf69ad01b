-- +goose Up
-- Entries that are in the books and not in the chain yet. A queue beside ledger_tx, because an entry never changes; without
-- an index, because its rows are gone within seconds.
CREATE TABLE ledger_unlinked (
    tx_id  uuid NOT NULL
);
-- +goose StatementBegin
CREATE FUNCTION ledger_tx_unlinked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ledger_unlinked (tx_id) SELECT id FROM added;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER ledger_tx_unlinked AFTER INSERT ON ledger_tx REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_tx_unlinked();
INSERT INTO ledger_unlinked (tx_id) SELECT id FROM ledger_tx;

-- The chain: batches of entries, each with the Merkle root of its entries and the hash of the batch before.
CREATE TABLE ledger_batch (
    n        bigint PRIMARY KEY,          -- from 1
    made_at  timestamptz NOT NULL,
    txs      integer NOT NULL,            -- how many entries
    root     bytea NOT NULL,              -- of the Merkle tree over their hashes
    prev     bytea NOT NULL,              -- hash of the batch before; zeros for the first
    hash     bytea NOT NULL
);
CREATE TABLE ledger_link (
    tx_id     uuid PRIMARY KEY REFERENCES ledger_tx,
    batch     bigint NOT NULL REFERENCES ledger_batch,
    position  integer NOT NULL            -- in the batch, from 0
);
CREATE UNIQUE INDEX ledger_link_place ON ledger_link (batch, position);

-- What each entry did to each org, with what the org had after it, in the order of the chain: a page of an org's history
-- costs the same however long it is.
CREATE TABLE ledger_line (
    n         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    org_id    uuid NOT NULL REFERENCES org,
    tx_id     uuid NOT NULL REFERENCES ledger_tx,
    currency  text NOT NULL,
    change    jsonb NOT NULL,             -- nano-units by account kind
    after     jsonb NOT NULL
);
CREATE INDEX ledger_line_org ON ledger_line (org_id, currency, n);
CREATE UNIQUE INDEX ledger_line_tx ON ledger_line (org_id, tx_id, currency);

CREATE TRIGGER ledger_batch_immutable BEFORE UPDATE OR DELETE ON ledger_batch FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_batch_no_truncate BEFORE TRUNCATE ON ledger_batch EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_link_immutable BEFORE UPDATE OR DELETE ON ledger_link FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_link_no_truncate BEFORE TRUNCATE ON ledger_link EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_line_immutable BEFORE UPDATE OR DELETE ON ledger_line FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_line_no_truncate BEFORE TRUNCATE ON ledger_line EXECUTE FUNCTION refuse_change();
