-- +goose Up
-- Whether a display uses the GPU: then the driver ends kernels that run for some seconds. Agents report it after a check.
ALTER TABLE gpu ADD COLUMN display boolean NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE gpu DROP COLUMN display;
