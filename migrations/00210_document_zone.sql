-- +goose Up
-- The time zone in which a document's date is read, as its organisation had set it when the document was issued. The
-- number's year stays that of UTC, so that a series is numbered in one order for all organisations.
ALTER TABLE document ADD COLUMN zone text NOT NULL DEFAULT 'UTC';
