-- +goose Up
-- What platform operators asked Stripe to take back of a payout, until it came back: that it was refused stays to be read.
ALTER TABLE payout
    ADD COLUMN reversal_state text NOT NULL DEFAULT '' CHECK (reversal_state IN ('', 'asked', 'refused')),
    ADD COLUMN reversal text NOT NULL DEFAULT '',                                          -- ours: metadata of Stripe's reversal
    ADD COLUMN reversal_amount bigint NOT NULL DEFAULT 0 CHECK (reversal_amount >= 0),   -- nano-units, whole cents
    ADD COLUMN reversal_failure text NOT NULL DEFAULT '';                                  -- Stripe's reason
