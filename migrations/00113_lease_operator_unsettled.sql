-- +goose Up
-- What an operator's leases have measured and is not booked yet is added up for their payouts page.
CREATE INDEX lease_operator_unsettled ON lease (host_org_id) WHERE settled_at IS NULL;
