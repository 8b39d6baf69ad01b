-- +goose Up
-- Which warning of a short runway was given last in this dip, and how many dips there were before.
ALTER TABLE cluster
    ADD COLUMN runway_told_s integer NOT NULL DEFAULT 0, -- its threshold in seconds; 0: none
    ADD COLUMN runway_dips integer NOT NULL DEFAULT 0;
