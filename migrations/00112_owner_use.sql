-- +goose Up
-- The renter has been told that programs of its host's owner use the node's GPUs.
ALTER TABLE node ADD COLUMN owner_use_told boolean NOT NULL DEFAULT false;
