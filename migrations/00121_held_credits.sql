-- +goose Up
-- A credit for a failure that a renter could have caused waits for a person when it is above the cap. booked: it is booked
-- as far as it has come; held: nothing is booked until somebody decides; refused: nothing will be.
ALTER TABLE service_credit
    ADD COLUMN state text NOT NULL DEFAULT 'booked',
    ADD COLUMN inducible boolean NOT NULL DEFAULT false,
    ADD COLUMN decided_by uuid,
    ADD COLUMN decided_at timestamptz,
    ADD COLUMN decided_why text NOT NULL DEFAULT '';
