-- +goose Up
-- unpaid: what the renter had paid did not cover the time for which the quote holds its GPUs. The previous version makes quotes without
-- it, which count in no part of the market for the two minutes that they last.
ALTER TABLE quote ADD COLUMN unpaid boolean NOT NULL DEFAULT false;
