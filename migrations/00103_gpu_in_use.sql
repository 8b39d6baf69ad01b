-- +goose Up
-- What the host's owner uses a GPU for beside leases, "Xorg, 412 MiB"; '' = it is free for them. For the operator's eyes.
ALTER TABLE gpu ADD COLUMN in_use text NOT NULL DEFAULT '';
