-- +goose Up
CREATE INDEX ledger_tx_corrects ON ledger_tx (corrects) WHERE corrects IS NOT NULL;
