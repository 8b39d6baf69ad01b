-- +goose Up
-- Earnings from a renter who has lost a dispute are reviewed, up to what was lost.
ALTER TABLE payout_review
    ADD COLUMN held_limit bigint CHECK (held_limit >= 0),       -- nano-units, decided ones included; NULL: all that the renter pays
    ADD COLUMN advice text NOT NULL DEFAULT '';                 -- 'refuse' or 'release': what to do when nothing else is known; '': none
CREATE INDEX dispute_lost ON dispute (org_id) WHERE kind = 'dispute' AND state = 'lost';
