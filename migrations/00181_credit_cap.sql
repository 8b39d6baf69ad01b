-- +goose Up
-- How much of a credit for a failure that the renter could have caused is booked without a person's decision; NULL: all of it, or, of one
-- that was held before there were caps, nothing.
ALTER TABLE service_credit ADD COLUMN at_once bigint;
