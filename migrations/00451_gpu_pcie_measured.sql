-- +goose Up
-- Whether pcie_gen is what the GPU's link was under load; otherwise it is the most that the GPU reports.
ALTER TABLE gpu ADD COLUMN pcie_measured boolean NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE gpu DROP COLUMN pcie_measured;
