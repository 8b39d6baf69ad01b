-- +goose Up
-- The renter has received a notice that the cloud of the node's host announces an interruption.
ALTER TABLE node ADD COLUMN leaving_told boolean NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE node DROP COLUMN leaving_told;
