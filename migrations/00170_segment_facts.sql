-- +goose Up
-- What a host signs about a segment beyond its time: whether the rank was up, whom it did not hear, whether the time comes
-- after a stop. NULL: nothing, and up is true.
ALTER TABLE usage_segment
    ADD COLUMN up boolean NOT NULL DEFAULT true,
    ADD COLUMN facts jsonb;

-- Since when a rank's host has claimed not to hear each rank of peers_down, unix ms, in the same order.
ALTER TABLE node_status ADD COLUMN peers_from_ms bigint[] NOT NULL DEFAULT '{}';

-- From these it is decided who pays: they are only ever added.
CREATE TRIGGER rank_gap_immutable BEFORE UPDATE OR DELETE ON rank_gap FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER rank_gap_no_truncate BEFORE TRUNCATE ON rank_gap EXECUTE FUNCTION refuse_change();
CREATE TRIGGER deaf_span_immutable BEFORE UPDATE OR DELETE ON deaf_span FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER deaf_span_no_truncate BEFORE TRUNCATE ON deaf_span EXECUTE FUNCTION refuse_change();
