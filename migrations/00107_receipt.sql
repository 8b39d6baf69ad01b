-- +goose Up
-- Receipts as they were when the payment arrived: whatever the parties change later, they stay.
CREATE TABLE receipt (
    topup_id   uuid PRIMARY KEY REFERENCES topup,
    issued_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    content    jsonb NOT NULL              -- payment.Receipt: parties, amounts, tax
);
CREATE TRIGGER receipt_immutable BEFORE UPDATE OR DELETE ON receipt FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER receipt_no_truncate BEFORE TRUNCATE ON receipt EXECUTE FUNCTION refuse_change();
