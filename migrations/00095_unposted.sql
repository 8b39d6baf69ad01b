-- +goose Up
-- Proven time is booked in steps: since when some of a lease waits for it, unix ms; 0 when all that is proven is booked.
ALTER TABLE lease_meter ADD COLUMN unposted_since_ms bigint NOT NULL DEFAULT 0;
