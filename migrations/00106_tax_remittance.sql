-- +goose Up
-- What was paid to tax offices, by country and period. The platform's bank pays; tax_payable falls by it in one transaction.
CREATE TABLE tax_remittance (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    country     text NOT NULL,
    period      text NOT NULL,                      -- as it was asked for: 2026, 2026-Q1, 2026-01
    from_time   timestamptz NOT NULL,
    to_time     timestamptz NOT NULL CHECK (to_time > from_time),
    amount      bigint NOT NULL CHECK (amount > 0), -- nano-units
    currency    text NOT NULL,
    reason      text NOT NULL,                      -- such as the reference of the bank's transfer
    user_id     uuid NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX tax_remittance_period ON tax_remittance (from_time, to_time);
CREATE TRIGGER tax_remittance_immutable BEFORE UPDATE OR DELETE ON tax_remittance FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER tax_remittance_no_truncate BEFORE TRUNCATE ON tax_remittance EXECUTE FUNCTION refuse_change();
