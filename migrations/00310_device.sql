-- +goose Up
-- Devices of several vendors, and parts of devices. Rows of agents that do not report the new facts keep the defaults.
ALTER TABLE gpu
    ADD COLUMN vendor text NOT NULL DEFAULT 'nvidia',
    ADD COLUMN kind text NOT NULL DEFAULT 'gpu',
    ADD COLUMN parent_id uuid,                   -- the GPU that a slice is part of
    ADD COLUMN attach_name text NOT NULL DEFAULT '',
    ADD COLUMN rocm_max text NOT NULL DEFAULT '';
CREATE INDEX gpu_parent ON gpu (parent_id) WHERE parent_id IS NOT NULL;
ALTER TABLE gpu_health
    ADD COLUMN vendor text NOT NULL DEFAULT 'nvidia',
    ADD COLUMN code text NOT NULL DEFAULT '';
