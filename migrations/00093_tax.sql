-- +goose Up
-- Prices and wallets exclude tax; it arises when money is paid in. What a payment bears is decided when it is made and
-- never changes: amount is what the wallet gets, amount + tax what is charged. Nano-units, whole cents.
ALTER TABLE topup
    ADD COLUMN tax         bigint NOT NULL DEFAULT 0 CHECK (tax >= 0),
    ADD COLUMN tax_ppm     integer NOT NULL DEFAULT 0,
    ADD COLUMN tax_name    text NOT NULL DEFAULT '',    -- 'VAT'
    ADD COLUMN tax_reason  text NOT NULL DEFAULT '',    -- tax.Reason; '' = made before taxes were
    ADD COLUMN tax_country text NOT NULL DEFAULT '',    -- where it is taxed, ISO 3166-1 alpha-2; '' = nowhere
    ADD COLUMN tax_vat_id  text NOT NULL DEFAULT '';    -- the buyer's, where it is why there is no tax

-- What goes back with amount; for a dispute, how much of amount is tax.
ALTER TABLE refund ADD COLUMN tax bigint NOT NULL DEFAULT 0 CHECK (tax >= 0);
ALTER TABLE dispute ADD COLUMN tax bigint NOT NULL DEFAULT 0 CHECK (tax >= 0);

-- The tax book: every sale and every part of one that was given back, taxed or not, written with the entry of the ledger
-- that moves its tax. Σ tax is the balance of tax_payable.
CREATE TABLE tax_entry (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key         text NOT NULL UNIQUE,               -- of the ledger's entry
    org_id      uuid NOT NULL REFERENCES org,
    kind        text NOT NULL,                      -- tax.Kind
    ref         text NOT NULL,                      -- prefixed id of the payment, refund, …
    country     text NOT NULL,
    vat_id      text NOT NULL,
    reason      text NOT NULL,
    name        text NOT NULL,
    ppm         integer NOT NULL,
    net         bigint NOT NULL,                    -- nano-units, negative: given back
    tax         bigint NOT NULL,
    currency    text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (net >= 0 AND tax >= 0 OR net <= 0 AND tax <= 0)
);
CREATE INDEX tax_entry_at ON tax_entry (created_at);
CREATE INDEX tax_entry_org ON tax_entry (org_id, created_at);
CREATE TRIGGER tax_entry_immutable BEFORE UPDATE OR DELETE ON tax_entry FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER tax_entry_no_truncate BEFORE TRUNCATE ON tax_entry EXECUTE FUNCTION refuse_change();
