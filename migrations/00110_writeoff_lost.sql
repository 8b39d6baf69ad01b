-- +goose Up
-- What a lost dispute of an invoice's payment leaves owed can be written off too: the invoice stays paid at Stripe, which hears nothing.
ALTER TABLE postpaid_writeoff ADD COLUMN disputed boolean NOT NULL DEFAULT false;   -- of lost disputes, not of the invoice itself
-- What the desk counts of invoices that no card pays.
CREATE INDEX postpaid_invoice_unpaid ON postpaid_invoice (id) WHERE state IN ('open', 'uncollectible');
