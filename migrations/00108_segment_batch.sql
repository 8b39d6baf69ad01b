-- +goose Up
-- Lists of segments that a host signed as a whole. A segment of one has no signature of its own: the list's, and the hashes
-- beside it, prove it.
CREATE TABLE segment_batch (
    id        bigint PRIMARY KEY,                -- of segment_batch_id
    signature bytea NOT NULL,
    hashes    bytea NOT NULL,                    -- the payload hashes as they were signed, 32 bytes each
    CHECK (octet_length(hashes) > 0 AND octet_length(hashes) % 32 = 0)
);
ALTER TABLE segment_batch ALTER COLUMN hashes SET STORAGE EXTERNAL; -- hashes do not shrink: do not try
CREATE SEQUENCE segment_batch_id;
CREATE TRIGGER segment_batch_immutable BEFORE UPDATE OR DELETE ON segment_batch FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- 0: signed by itself, and signature is its own.
ALTER TABLE usage_segment
    ADD COLUMN batch bigint NOT NULL DEFAULT 0,
    ADD COLUMN batch_position smallint NOT NULL DEFAULT 0;
