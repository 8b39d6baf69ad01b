-- +goose Up
-- What a host says is wrong with a node that is not well: a reason's code, and for people.
ALTER TABLE node_status
    ADD COLUMN trouble text NOT NULL DEFAULT '',
    ADD COLUMN trouble_detail text NOT NULL DEFAULT '';
