-- +goose Up
-- Until when the node's host takes no new leases because its data cap is used up, as its renter was told last.
ALTER TABLE node ADD COLUMN cap_told timestamptz;
