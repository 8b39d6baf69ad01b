-- +goose Up
-- What is taken back of an invoice's payment freezes the earnings of its period, as a disputed top-up freezes those since it: by the
-- card's bank, or by a refund that somebody of ours made at Stripe (re_…), until a platform operator lets the hosts have them.
ALTER TABLE dispute
    ALTER COLUMN topup_id DROP NOT NULL,
    ADD COLUMN invoice_id text NOT NULL DEFAULT '',     -- in_…; '': of a top-up
    ADD COLUMN kind text NOT NULL DEFAULT 'dispute' CHECK (kind IN ('dispute', 'refund')),
    DROP CONSTRAINT dispute_state_check,
    ADD CONSTRAINT dispute_state_check CHECK (state IN ('open', 'won', 'lost', 'released', 'returned')),
    ADD CONSTRAINT dispute_of CHECK ((topup_id IS NULL) <> (invoice_id = ''));
CREATE INDEX dispute_invoice ON dispute (invoice_id) WHERE invoice_id <> '';
