-- +goose Up
-- What tax an invoice bears, decided when its draft is seen and frozen then. total is with tax; due and charged are without.
ALTER TABLE postpaid_invoice
    ADD COLUMN tax         bigint NOT NULL DEFAULT 0 CHECK (tax >= 0),  -- cents, of total
    ADD COLUMN tax_base    bigint NOT NULL DEFAULT 0,                   -- cents without tax that it is on: of this invoice, and of earlier ones that Stripe closed without it
    ADD COLUMN tax_ppm     integer NOT NULL DEFAULT 0,
    ADD COLUMN tax_name    text NOT NULL DEFAULT '',
    ADD COLUMN tax_reason  text NOT NULL DEFAULT '',                    -- tax.Reason; '': not decided, or Stripe closed it without its tax
    ADD COLUMN tax_country text NOT NULL DEFAULT '',
    ADD COLUMN tax_vat_id  text NOT NULL DEFAULT '';

-- What was invoiced before there were taxes is not taxed by the next invoice.
UPDATE postpaid_invoice SET tax_base = total WHERE state <> 'draft';
