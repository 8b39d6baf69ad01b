-- +goose Up
-- An organisation's clusters by their end: failed starts of the last hour.
CREATE INDEX cluster_org_ended ON cluster (org_id, ended_at) WHERE ended_at IS NOT NULL;
