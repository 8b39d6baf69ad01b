-- +goose Up
-- The cluster reads the volume on demand: what its snapshot needs stays in the store while a lease of it lives.
SET LOCAL lock_timeout = '3s';
ALTER TABLE volume_mount ADD COLUMN lazy boolean NOT NULL DEFAULT false;
