-- +goose Up
-- Since when a rank's host has reported the same peers_down, unix ms; NULL: it reports none.
ALTER TABLE node_status ADD COLUMN peers_since_ms bigint;
