-- +goose Up
-- Statements read a renter's leases of a time.
CREATE INDEX lease_renter ON lease (renter_org_id, created_at);
