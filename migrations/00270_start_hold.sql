-- +goose Up
-- For how long organisations held GPUs without paying: from the claim until every rank ran, or until the start failed.
-- start_from is the beginning of a start under way. The previous version does not clear it, so it counts only while the cluster's
-- state is provisioning. start_new: what the organisation had paid did not cover the start.
ALTER TABLE cluster ADD COLUMN start_from timestamptz, ADD COLUMN start_new boolean NOT NULL DEFAULT false;
UPDATE cluster SET start_from = created_at WHERE ended_at IS NULL AND running_at IS NULL;
-- The largest size of its image that a host has reported during the present start, bytes.
ALTER TABLE node_status ADD COLUMN image_bytes bigint NOT NULL DEFAULT 0;

CREATE TABLE start_hold (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    org_id      uuid NOT NULL REFERENCES org,
    cluster_id  uuid REFERENCES cluster,  -- null: several starts in one row
    starts      bigint NOT NULL DEFAULT 1 CHECK (starts > 0),
    ended_at    timestamptz NOT NULL,
    held_ms     bigint NOT NULL CHECK (held_ms >= 0),  -- GPU-milliseconds from claim to end
    gpu_ms      bigint NOT NULL CHECK (gpu_ms >= 0),   -- what of it counts
    value       bigint NOT NULL CHECK (value >= 0),    -- what gpu_ms would have cost, nano-units
    reason      text NOT NULL DEFAULT '',              -- why the start failed; '': it ran
    excused_by  uuid REFERENCES org                    -- the operator whose failure ended it
);
CREATE INDEX start_hold_org ON start_hold (org_id, ended_at);
CREATE INDEX start_hold_ended ON start_hold (ended_at);
CREATE INDEX start_hold_single ON start_hold (ended_at) WHERE cluster_id IS NOT NULL;
