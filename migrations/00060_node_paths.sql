-- +goose Up
-- How a node's overlay reaches each other rank: [{"rank":1,"path":"relay","mtu":1280}].
ALTER TABLE node_status ADD COLUMN paths jsonb NOT NULL DEFAULT '[]';
