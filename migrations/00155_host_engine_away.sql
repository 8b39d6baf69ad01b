-- +goose Up
-- Why the host's container engine does not answer, in its agent's words, for the host's operator; '' while it answers.
-- A host whose engine is away has needs_full_report set as well: that takes it off the market until the engine is back and
-- a full report shows that nothing is left of ended leases.
ALTER TABLE host ADD COLUMN engine_away text NOT NULL DEFAULT '';
