-- +goose Up
-- GPUs that a reset of one resets together, by their vendor's name of the group. A host with such GPUs is rented whole.
SET LOCAL lock_timeout = '3s';
ALTER TABLE gpu ADD COLUMN hive text NOT NULL DEFAULT '';
