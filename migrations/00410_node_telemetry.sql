-- +goose Up
-- What nodes exchanged with networks and disks: one row per lease per five minutes, as in telemetry. The values are counters in bytes
-- since the start of the run and begin again from zero at the next one; scratch is what the files there take. -1 is not known.
CREATE TABLE node_telemetry (
    lease_id    uuid NOT NULL,
    bucket      timestamptz NOT NULL,            -- start of the five minutes
    at_ms       bigint[] NOT NULL,               -- unix milliseconds of each sample
    net_rx      bigint[] NOT NULL,               -- from the internet
    net_tx      bigint[] NOT NULL,
    ranks_rx    bigint[] NOT NULL,               -- from the other ranks
    ranks_tx    bigint[] NOT NULL,
    disk_read   bigint[] NOT NULL,
    disk_write  bigint[] NOT NULL,
    scratch     bigint[] NOT NULL,
    PRIMARY KEY (lease_id, bucket)
) PARTITION BY RANGE (bucket);
CREATE TABLE node_telemetry_default PARTITION OF node_telemetry DEFAULT;

-- +goose StatementBegin
-- Makes the partitions of today and the three days ahead of a table of telemetry, and drops those that hold only what is older than
-- keep. Rows that came before their day had a partition move into it.
CREATE FUNCTION keep_daily_partitions(parent text, keep interval) RETURNS void LANGUAGE plpgsql
SET search_path = public, pg_temp SET lock_timeout = '3s' SET timezone = 'UTC' AS $$
DECLARE
    at CONSTANT timestamptz := clock_timestamp();
    day timestamptz;
    part text;
BEGIN
    FOR day IN SELECT generate_series(date_trunc('day', at), date_trunc('day', at) + interval '3 days', interval '1 day') LOOP
        part := parent || '_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(part) IS NOT NULL;
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS)', part, parent);
        -- Nothing may arrive in the default partition between the move and the attachment.
        EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', parent || '_default');
        EXECUTE format('WITH moved AS (DELETE FROM %4$I WHERE bucket >= %1$L AND bucket < %2$L RETURNING *) INSERT INTO %3$I SELECT * FROM moved',
                       day, day + interval '1 day', part, parent || '_default');
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, part, day, day + interval '1 day');
    END LOOP;
    FOR part IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = parent::regclass AND c.relname ~ ('^' || parent || '_[0-9]{8}$')
                  AND to_date(right(c.relname, 8), 'YYYYMMDD') + interval '1 day' < at - keep LOOP
        EXECUTE format('DROP TABLE %I', part);
    END LOOP;
    EXECUTE format('DELETE FROM %I WHERE bucket < %L', parent || '_default', at - keep);
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION keep_daily_partitions(text, interval) FROM PUBLIC;

-- +goose StatementBegin
-- Keeps the partitions of both tables of telemetry. It has the rights of their owner: the role of deploy/roles.sql makes no tables.
CREATE OR REPLACE FUNCTION keep_telemetry_partitions(keep interval) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET lock_timeout = '3s' SET timezone = 'UTC' AS $$
BEGIN
    -- One caller at a time; the others have nothing to wait for.
    IF NOT pg_try_advisory_xact_lock(727291) THEN
        RETURN;
    END IF;
    PERFORM keep_daily_partitions('telemetry', keep);
    PERFORM keep_daily_partitions('node_telemetry', keep);
END $$;
-- +goose StatementEnd
