-- +goose Up
-- Partitions by month for what grows without end and is found by an id that begins with its time (UUIDv7). This file prepares the
-- tables: each gets a bound, two months ahead, below which all of its rows are; 00222 checks it without stopping writers, 00223 makes
-- each table the first partition of a new one, which then need not be read.

-- The smallest id of a moment, and the moment of an id.
-- +goose StatementBegin
CREATE FUNCTION first_id(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid
$$;
CREATE FUNCTION time_of_id(id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT to_timestamp(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0)
$$;
-- The first moment of a month, so many months later, in UTC.
CREATE FUNCTION month_start(at timestamptz, months integer) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT (date_trunc('month', at AT TIME ZONE 'UTC') + make_interval(months => months)) AT TIME ZONE 'UTC'
$$;

DO $$
DECLARE
    bound CONSTANT uuid := first_id(month_start(clock_timestamp(), 2));
BEGIN
    EXECUTE format('ALTER TABLE usage_segment ADD CONSTRAINT usage_segment_first CHECK (lease_id < %L) NOT VALID', bound);
    EXECUTE format('ALTER TABLE cluster_event ADD CONSTRAINT cluster_event_first CHECK (cluster_id < %L) NOT VALID', bound);
    EXECUTE format('ALTER TABLE audit_event ADD CONSTRAINT audit_event_first CHECK (id < %L) NOT VALID', bound);
END $$;
-- +goose StatementEnd
