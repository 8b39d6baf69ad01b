-- +goose Up
-- What each run of a lease did on its host's own line to the internet, as the host counted it: for the operator, from
-- whose address it went, and for reports of abuse. Kept for half a year.
CREATE TABLE lease_traffic (
    lease_id   uuid NOT NULL REFERENCES lease,
    epoch      integer NOT NULL,
    host_id    uuid NOT NULL REFERENCES host,
    opened     bigint NOT NULL,   -- connections tried to the outside
    refused    bigint NOT NULL,   -- packets to where no lease may
    up_bytes   bigint NOT NULL,
    down_bytes bigint NOT NULL,
    first_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at    timestamptz NOT NULL DEFAULT clock_timestamp(), -- when it was told last
    PRIMARY KEY (lease_id, epoch)
);
CREATE INDEX lease_traffic_host ON lease_traffic (host_id, last_at DESC);
CREATE INDEX lease_traffic_old ON lease_traffic (last_at);
