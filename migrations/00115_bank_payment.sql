-- +goose Up
-- What came to the platform's bank account for invoices whose payment a card's bank had taken back. The ledger moves with it in one
-- transaction.
CREATE TABLE postpaid_bank_payment (
    invoice_id  text NOT NULL REFERENCES postpaid_invoice,
    reference   text NOT NULL CHECK (reference <> ''),          -- of the transfer: one of an invoice's is booked once
    org_id      uuid NOT NULL REFERENCES org,
    amount      bigint NOT NULL CHECK (amount > 0),             -- nano-units, whole cents
    waived      bigint NOT NULL DEFAULT 0 CHECK (waived >= 0),  -- nano-units, less than a cent: no bank moves it
    reason      text NOT NULL,                                  -- the operator's
    user_id     uuid NOT NULL,                                  -- who booked it
    booked_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (invoice_id, reference)
);
CREATE TRIGGER postpaid_bank_payment_immutable BEFORE UPDATE OR DELETE ON postpaid_bank_payment FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER postpaid_bank_payment_no_truncate BEFORE TRUNCATE ON postpaid_bank_payment EXECUTE FUNCTION refuse_change();
