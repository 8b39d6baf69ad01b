-- +goose Up
-- How fast GPUs ran, and what slowed them down: one row per GPU per five minutes in which it did something. An idle GPU has none, and
-- samples that differ little from the one before share an element of the arrays. -1 is not known. The counters are the device's: since
-- its driver was loaded.
CREATE TABLE telemetry_speed (
    gpu_id         uuid NOT NULL,
    bucket         timestamptz NOT NULL,         -- start of the five minutes
    at_ms          bigint[] NOT NULL,            -- unix milliseconds of an element's first sample
    for_ms         integer[] NOT NULL,           -- from there to its last sample
    sm_mhz         integer[] NOT NULL,
    mem_mhz        integer[] NOT NULL,
    limits         integer[] NOT NULL,           -- bits: what holds the clocks down, host.Limits
    fan            smallint[] NOT NULL,          -- percent
    pcie_replays   bigint[] NOT NULL,
    nvlink_errors  bigint[] NOT NULL,
    energy_j       bigint[] NOT NULL,            -- joules, at the last sample
    PRIMARY KEY (gpu_id, bucket)
) PARTITION BY RANGE (bucket);
CREATE TABLE telemetry_speed_default PARTITION OF telemetry_speed DEFAULT;

-- +goose StatementBegin
-- Keeps the partitions of the tables of telemetry. It has the rights of their owner: the role of deploy/roles.sql makes no tables.
CREATE OR REPLACE FUNCTION keep_telemetry_partitions(keep interval) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET lock_timeout = '3s' SET timezone = 'UTC' AS $$
BEGIN
    -- One caller at a time; the others have nothing to wait for.
    IF NOT pg_try_advisory_xact_lock(727291) THEN
        RETURN;
    END IF;
    PERFORM keep_daily_partitions('telemetry', keep);
    PERFORM keep_daily_partitions('telemetry_speed', keep);
    PERFORM keep_daily_partitions('node_telemetry', keep);
END $$;
-- +goose StatementEnd
