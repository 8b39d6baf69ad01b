-- +goose Up
-- Each table becomes the first partition of a new one of its name; what is older than its bound stays where it is. The bounds were
-- checked by 00222, so nothing is read, and all locks are short.

-- Referenced tables first, as transactions of the server lock them.
LOCK TABLE cluster, lease IN SHARE ROW EXCLUSIVE MODE;
LOCK TABLE usage_segment, cluster_event, audit_event IN ACCESS EXCLUSIVE MODE;

-- The old tables step aside, with their names of indexes; triggers come back with the new tables.
ALTER TABLE usage_segment RENAME TO usage_segment_first;
ALTER INDEX usage_segment_pkey RENAME TO usage_segment_first_pkey;
DROP TRIGGER usage_segment_immutable ON usage_segment_first;
ALTER TABLE cluster_event RENAME TO cluster_event_first;
ALTER INDEX cluster_event_pkey RENAME TO cluster_event_first_pkey;
ALTER TABLE audit_event RENAME TO audit_event_first;
ALTER INDEX audit_event_pkey RENAME TO audit_event_first_pkey;
ALTER INDEX audit_event_org RENAME TO audit_event_first_org;
ALTER INDEX audit_event_object RENAME TO audit_event_first_object;
ALTER INDEX audit_event_about RENAME TO audit_event_first_about;
ALTER INDEX audit_event_renter RENAME TO audit_event_first_renter;

CREATE TABLE usage_segment (
    lease_id uuid NOT NULL,
    epoch integer NOT NULL,
    boot_id text NOT NULL,
    seq bigint NOT NULL,
    anchor bigint NOT NULL,
    boot_end_ms bigint NOT NULL,
    start_ms bigint NOT NULL,
    end_ms bigint NOT NULL,
    energy_mj bigint NOT NULL,
    final boolean NOT NULL,
    payload_hash bytea NOT NULL,
    signature bytea NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    batch bigint NOT NULL DEFAULT 0,
    batch_position smallint NOT NULL DEFAULT 0,
    up boolean NOT NULL DEFAULT true,
    facts jsonb,
    PRIMARY KEY (lease_id, epoch, boot_id, seq),
    CONSTRAINT usage_segment_check CHECK (end_ms > start_ms OR final),
    CONSTRAINT usage_segment_lease FOREIGN KEY (lease_id) REFERENCES lease
) PARTITION BY RANGE (lease_id);
CREATE TRIGGER usage_segment_immutable BEFORE UPDATE OR DELETE ON usage_segment FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER usage_segment_no_truncate BEFORE TRUNCATE ON usage_segment EXECUTE FUNCTION refuse_change();

CREATE TABLE cluster_event (
    cluster_id uuid NOT NULL REFERENCES cluster,
    n bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind text NOT NULL,
    rank integer,
    title text NOT NULL,
    detail text NOT NULL DEFAULT '',
    data jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (cluster_id, n)
) PARTITION BY RANGE (cluster_id);

CREATE TABLE audit_event (
    id uuid PRIMARY KEY,
    org_id uuid,
    user_id uuid,
    token_id uuid,
    action text NOT NULL,
    object text NOT NULL DEFAULT '',
    detail jsonb NOT NULL DEFAULT '{}',
    address text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
) PARTITION BY RANGE (id);
CREATE INDEX audit_event_org ON audit_event (org_id, id);
CREATE INDEX audit_event_object ON audit_event (object, id) WHERE object <> '';
CREATE INDEX audit_event_about ON audit_event ((detail ->> 'org'), id) WHERE detail ? 'org';
CREATE INDEX audit_event_renter ON audit_event ((detail ->> 'renter'), id) WHERE detail ? 'renter';

-- +goose StatementBegin
DO $$
DECLARE
    t text;
    bound uuid;
    last bigint;
BEGIN
    -- Numbers of events go on where they were.
    SELECT last_value INTO last FROM cluster_event_n_seq;
    ALTER TABLE cluster_event_first ALTER COLUMN n DROP IDENTITY;
    EXECUTE format('ALTER TABLE cluster_event ALTER COLUMN n ADD GENERATED ALWAYS AS IDENTITY (START WITH %s)', last + 1);
    FOREACH t IN ARRAY ARRAY['usage_segment', 'cluster_event', 'audit_event'] LOOP
        SELECT substring(pg_get_constraintdef(c.oid) FROM '[0-9a-f]{8}-[0-9a-f-]{27}')::uuid INTO STRICT bound
        FROM pg_constraint c WHERE c.conrelid = (t || '_first')::regclass AND c.conname = t || '_first';
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%L)', t, t || '_first', bound);
        EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', t || '_first', t || '_first');
        -- What fits in no month: ids that do not begin with their time, and a month whose partition was not made.
        EXECUTE format('CREATE TABLE %I PARTITION OF %I DEFAULT', t || '_default', t);
        -- The role of deploy/roles.sql rewrites nothing that it could not rewrite before.
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'muster_server') THEN
            EXECUTE format('GRANT SELECT, INSERT ON %I TO muster_server', t);
            EXECUTE format('REVOKE ALL ON %I, %I FROM muster_server', t || '_first', t || '_default');
            IF t = 'usage_segment' THEN
                REVOKE UPDATE, DELETE ON usage_segment FROM muster_server;
            ELSE
                EXECUTE format('GRANT UPDATE, DELETE ON %I TO muster_server', t);
            END IF;
        END IF;
    END LOOP;
END $$;
-- +goose StatementEnd
CREATE TRIGGER usage_segment_no_truncate BEFORE TRUNCATE ON usage_segment_default EXECUTE FUNCTION refuse_change();

-- +goose StatementBegin
-- The tables with partitions by month, the months that their rows are kept after the month of their id, and what must not live any more.
CREATE FUNCTION month_tables() RETURNS TABLE (name text, keep_months integer, alive text) LANGUAGE sql STABLE AS $$
    VALUES ('usage_segment', 132, 'SELECT FROM lease WHERE id >= $1 AND id < $2 AND (settled_at IS NULL OR ended_at > $3)'),
           ('cluster_event', 25, 'SELECT FROM cluster WHERE id >= $1 AND id < $2 AND (ended_at IS NULL OR ended_at > $3)'),
           ('audit_event', 36, 'SELECT WHERE false AND $1 < $2 AND $3 IS NULL')
$$;

-- The partitions of a table with bounds, the oldest first. from_id is null for the first.
CREATE FUNCTION month_partitions_of(of_table text) RETURNS TABLE (name text, from_id uuid, to_id uuid) LANGUAGE sql STABLE AS $$
    SELECT c.relname::text, b.from_id, b.to_id
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    CROSS JOIN LATERAL (SELECT substring(x.bound FROM $re$FROM \('([0-9a-f-]{36})'\)$re$)::uuid AS from_id,
                               substring(x.bound FROM $re$TO \('([0-9a-f-]{36})'\)$re$)::uuid AS to_id
                        FROM (SELECT pg_get_expr(c.relpartbound, c.oid) AS bound) x) b
    WHERE i.inhparent = ('public.' || of_table)::regclass AND b.to_id IS NOT NULL
    ORDER BY b.to_id
$$;

-- Makes the partitions of the coming months as seen at a moment, and drops at most one old partition per table. It runs with the rights
-- of its caller: only the owner of the tables can.
CREATE FUNCTION keep_month_partitions_at(at timestamptz, OUT made integer, OUT dropped integer) LANGUAGE plpgsql
SET search_path = public, pg_temp SET lock_timeout = '3s' AS $$
DECLARE
    t record;
    p record;
    month timestamptz;
    part text;
    living boolean;
    old_at timestamptz;
BEGIN
    made := 0;
    dropped := 0;
    -- One caller at a time; the others have nothing to wait for.
    IF NOT pg_try_advisory_xact_lock(727290) THEN
        RETURN;
    END IF;
    FOR t IN SELECT * FROM month_tables() LOOP
        SELECT time_of_id(x.to_id) INTO month FROM month_partitions_of(t.name) x ORDER BY x.to_id DESC LIMIT 1;
        WHILE month < month_start(at, 3) LOOP
            part := t.name || to_char(month AT TIME ZONE 'UTC', '"_"YYYY"_"MM');
            BEGIN
                EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES INCLUDING STORAGE)', part, t.name);
                EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', t.name, part, first_id(month), first_id(month_start(month, 1)));
                IF t.name = 'usage_segment' THEN
                    EXECUTE format('CREATE TRIGGER usage_segment_no_truncate BEFORE TRUNCATE ON %I EXECUTE FUNCTION refuse_change()', part);
                END IF;
                IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'muster_server') THEN
                    EXECUTE format('REVOKE ALL ON %I FROM muster_server', part);
                END IF;
                made := made + 1;
            EXCEPTION WHEN check_violation THEN
                NULL; -- rows of this month are in the default partition already, and stay there
            END;
            month := month_start(month, 1);
        END LOOP;
        old_at := month_start(at, -t.keep_months);
        FOR p IN SELECT * FROM month_partitions_of(t.name) x WHERE time_of_id(x.to_id) <= old_at ORDER BY x.to_id LIMIT 1 LOOP
            EXECUTE 'SELECT EXISTS (' || t.alive || ')' INTO living
            USING coalesce(p.from_id, '00000000-0000-0000-0000-000000000000'), p.to_id, old_at;
            IF NOT living THEN
                EXECUTE format('DROP TABLE %I', p.name);
                dropped := dropped + 1;
            END IF;
        END LOOP;
    END LOOP;
END $$;

-- The same now, with the rights of the owner of the tables: a server that cannot change tables may call it, and nothing that it
-- says decides what is dropped.
CREATE FUNCTION keep_month_partitions(OUT made integer, OUT dropped integer) LANGUAGE sql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
    SELECT * FROM public.keep_month_partitions_at(clock_timestamp())
$$;

-- How many tables have no partition for the whole of next month, and in how many the default partition holds something.
CREATE FUNCTION month_partitions_state(OUT missing integer, OUT in_default integer) LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
    t record;
    found_some boolean;
BEGIN
    SELECT count(*) INTO missing FROM month_tables() m
    WHERE NOT EXISTS (SELECT FROM month_partitions_of(m.name) x WHERE time_of_id(x.to_id) >= month_start(clock_timestamp(), 2));
    in_default := 0;
    FOR t IN SELECT m.name FROM month_tables() m LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %I)', t.name || '_default') INTO found_some;
        in_default := in_default + found_some::integer;
    END LOOP;
END $$;

SELECT keep_month_partitions();
-- +goose StatementEnd
