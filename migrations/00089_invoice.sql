-- +goose Up
-- Invoices as they were issued: whatever is learnt or changed later, they stay.
CREATE TABLE invoice (
    org_id     uuid NOT NULL REFERENCES org,
    month      text NOT NULL,              -- YYYY-MM, in the org's zone when it was issued
    currency   text NOT NULL,
    number     text NOT NULL,
    issued_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    content    jsonb NOT NULL,             -- report.Invoice: parties, lines, credits, sums
    PRIMARY KEY (org_id, month, currency)
);
CREATE TRIGGER invoice_immutable BEFORE UPDATE OR DELETE ON invoice FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER invoice_no_truncate BEFORE TRUNCATE ON invoice EXECUTE FUNCTION refuse_change();
