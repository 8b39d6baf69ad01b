-- +goose Up
-- What ranks said of their peers never changes, and is kept for 400 days: longer than anybody can ask for a bill to be looked at again.
DROP TRIGGER deaf_span_immutable ON deaf_span;
CREATE TRIGGER deaf_span_immutable BEFORE UPDATE ON deaf_span FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER deaf_span_kept BEFORE DELETE ON deaf_span FOR EACH ROW
    WHEN (OLD.received_at > clock_timestamp() - interval '400 days') EXECUTE FUNCTION refuse_change();
-- +goose StatementBegin
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'muster_server') THEN
        GRANT DELETE ON deaf_span TO muster_server;
    END IF;
END $$;
-- +goose StatementEnd
