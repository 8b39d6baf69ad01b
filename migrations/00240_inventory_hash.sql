-- +goose Up
-- The hash of what a host reported last, and how many GPUs it had: the same inventory again changes nothing. NULL until
-- the next inventory.
ALTER TABLE host_inventory ADD COLUMN hash bytea, ADD COLUMN gpus integer;
