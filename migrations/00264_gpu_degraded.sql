-- +goose Up
-- A degraded GPU works and is rented, but slower than it could. Its agent reports the reason.
ALTER TABLE gpu ADD COLUMN degraded text NOT NULL DEFAULT '', ADD COLUMN degraded_since timestamptz;
ALTER TABLE gpu ADD CONSTRAINT gpu_degraded_since CHECK ((degraded = '') = (degraded_since IS NULL)) NOT VALID;
ALTER TABLE gpu VALIDATE CONSTRAINT gpu_degraded_since;
