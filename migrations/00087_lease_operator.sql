-- +goose Up
-- Statements of operators read the leases of their hosts of a time.
CREATE INDEX lease_operator ON lease (host_org_id, created_at);
