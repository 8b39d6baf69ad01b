-- +goose Up
-- A GPU's UUID is what a host says of itself, so whoever lists it first does not own it. A GPU that hosts of several organisations list is
-- contested: challenger: its organisation listed it later; holder: first, and nobody has rented it there yet; incumbent: first, and
-- rented there before, or staff decided so. Challengers and holders are not rented anew until staff decide.
ALTER TABLE gpu ADD COLUMN contest text NOT NULL DEFAULT ''
    CONSTRAINT gpu_contest_check CHECK (contest IN ('', 'challenger', 'holder', 'incumbent'));

-- One row holds a UUID; challengers do not. The index keeps its name: servers of the previous version know the refusal by it.
CREATE UNIQUE INDEX gpu_uuid_held ON gpu (uuid) WHERE removed_at IS NULL AND contest <> 'challenger';
DROP INDEX gpu_uuid_active;
ALTER INDEX gpu_uuid_held RENAME TO gpu_uuid_active;
CREATE INDEX gpu_uuid ON gpu (uuid);

-- Whose a UUID is, by a decision of staff. It is the organisation's, so that it outlives a host that is enrolled again.
CREATE TABLE gpu_award (
    uuid text PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES org,
    why text NOT NULL,
    decided_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
