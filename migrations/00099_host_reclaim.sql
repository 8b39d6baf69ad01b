-- +goose Up
-- An operator takes a machine back: what still runs there ends at reclaim_at; asked for at reclaim_asked_at.
ALTER TABLE host
    ADD COLUMN reclaim_at timestamptz,
    ADD COLUMN reclaim_asked_at timestamptz;

-- Which end the renter was told of; NULL = none.
ALTER TABLE node ADD COLUMN reclaim_told timestamptz;
