-- +goose Up
-- A lease whose host failed while it was billed: what its renter gets back. One row per lease, because a lease is lost once.
CREATE TABLE service_credit (
    lease_id    uuid PRIMARY KEY REFERENCES lease,
    cluster_id  uuid NOT NULL,
    reason      text NOT NULL,                  -- 'host_lost', 'gpu_failed', …
    from_ms     bigint NOT NULL,                -- unix ms: the billed time from here
    through_ms  bigint NOT NULL,                -- to here is credited, the end of the last window
    credited    bigint NOT NULL DEFAULT 0,      -- nano-units booked so far; grows when late segments are charged
    host_part   bigint NOT NULL DEFAULT 0,      -- of credited, taken from the operator
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (credited >= host_part AND host_part >= 0)
);
CREATE INDEX service_credit_cluster ON service_credit (cluster_id);
