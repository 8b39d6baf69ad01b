-- +goose Up
-- +goose StatementBegin
-- Makes the partitions of telemetry of today and the three days ahead, and drops those that hold only what is older than keep. Rows that
-- came before their day had a partition move into it. It has the rights of the owner of the table: the role of deploy/roles.sql makes
-- no tables.
CREATE FUNCTION keep_telemetry_partitions(keep interval) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp SET lock_timeout = '3s' SET timezone = 'UTC' AS $$
DECLARE
    at CONSTANT timestamptz := clock_timestamp();
    day timestamptz;
    part text;
BEGIN
    -- One caller at a time; the others have nothing to wait for.
    IF NOT pg_try_advisory_xact_lock(727291) THEN
        RETURN;
    END IF;
    FOR day IN SELECT generate_series(date_trunc('day', at), date_trunc('day', at) + interval '3 days', interval '1 day') LOOP
        part := 'telemetry_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(part) IS NOT NULL;
        EXECUTE format('CREATE TABLE %I (LIKE telemetry INCLUDING DEFAULTS)', part);
        -- Nothing may arrive in the default partition between the move and the attachment.
        LOCK TABLE telemetry_default IN ACCESS EXCLUSIVE MODE;
        EXECUTE format('WITH moved AS (DELETE FROM telemetry_default WHERE bucket >= %1$L AND bucket < %2$L RETURNING *) INSERT INTO %3$I SELECT * FROM moved',
                       day, day + interval '1 day', part);
        EXECUTE format('ALTER TABLE telemetry ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', part, day, day + interval '1 day');
    END LOOP;
    FOR part IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = 'telemetry'::regclass AND c.relname ~ '^telemetry_[0-9]{8}$'
                  AND to_date(right(c.relname, 8), 'YYYYMMDD') + interval '1 day' < at - keep LOOP
        EXECUTE format('DROP TABLE %I', part);
    END LOOP;
    DELETE FROM telemetry_default WHERE bucket < at - keep;
END $$;
-- +goose StatementEnd
