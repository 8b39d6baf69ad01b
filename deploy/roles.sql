-- Gives the server a database role that cannot rewrite history. Run it as the role that owns the database and runs migrations, after the
-- first `muster server migrate` and after each later one that made tables:
--
--     psql "$OWNER_DATABASE_URL" -v ON_ERROR_STOP=1 -f deploy/roles.sql
--     psql "$OWNER_DATABASE_URL" -c "ALTER ROLE muster_server LOGIN PASSWORD '…'"      -- once
--
-- Then MUSTER_DATABASE_URL of servers names muster_server, and that of `muster server migrate` the owner.
DO $$
BEGIN
    CREATE ROLE muster_server NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; -- roles are of the whole PostgreSQL server
END $$;

GRANT USAGE ON SCHEMA public TO muster_server;
REVOKE CREATE ON SCHEMA public FROM muster_server;
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM muster_server;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO muster_server;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO muster_server;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO muster_server;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO muster_server;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO muster_server;
REVOKE INSERT, UPDATE, DELETE ON goose_db_version FROM muster_server;

-- A table whose triggers refuse every change, whatever it changes, is append-only: the role has no right to change it either.
DO $$
DECLARE
    t record;
BEGIN
    FOR t IN
        SELECT g.tgrelid::regclass AS name, bool_or(g.tgtype & 16 > 0) AS no_update, bool_or(g.tgtype & 8 > 0) AS no_delete
        FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid AND c.relnamespace = 'public'::regnamespace
        WHERE g.tgfoid = 'refuse_change()'::regprocedure AND g.tgqual IS NULL AND g.tgattr = '' AND g.tgtype & 1 > 0
        GROUP BY g.tgrelid
    LOOP
        IF t.no_update THEN EXECUTE format('REVOKE UPDATE ON %s FROM muster_server', t.name); END IF;
        IF t.no_delete THEN EXECUTE format('REVOKE DELETE ON %s FROM muster_server', t.name); END IF;
    END LOOP;
END $$;
