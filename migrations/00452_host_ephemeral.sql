-- +goose Up
-- Hosts whose machine may vanish, such as a cloud's virtual machine: a silent one is retired, and its GPUs may be others after a boot.
ALTER TABLE host ADD COLUMN ephemeral boolean NOT NULL DEFAULT false;
CREATE INDEX host_ephemeral ON host (id) WHERE ephemeral AND retired_at IS NULL;

-- +goose Down
DROP INDEX host_ephemeral;
ALTER TABLE host DROP COLUMN ephemeral;
