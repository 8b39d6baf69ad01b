-- +goose Up
-- A forecast warns of what may still happen to its object. It is deleted when the object has ended.
ALTER TABLE notice ADD COLUMN forecast boolean NOT NULL DEFAULT false;
