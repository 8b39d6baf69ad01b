-- +goose Up
-- A claim on a slice excludes claims on the GPU that it is part of, and the other way round. The row of that GPU is locked,
-- so that of two transactions which claim both at the same time the later one sees the other's claim.
-- +goose StatementBegin
CREATE FUNCTION gpu_claim_family() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    whole uuid;
BEGIN
    SELECT coalesce(g.parent_id, CASE WHEN EXISTS (SELECT FROM gpu s WHERE s.parent_id = g.id) THEN g.id END)
    INTO whole FROM gpu g WHERE g.id = NEW.gpu_id;
    IF whole IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM FROM gpu WHERE id = whole FOR NO KEY UPDATE;
    IF EXISTS (
        SELECT FROM gpu_claim c JOIN gpu g ON g.id = c.gpu_id
        WHERE c.ended_at IS NULL AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp())
          AND CASE WHEN NEW.gpu_id = whole THEN g.parent_id = whole ELSE g.id = whole END) THEN
        RAISE unique_violation USING CONSTRAINT = 'gpu_claim_family',
            MESSAGE = 'a GPU and a slice of it cannot both be claimed';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER gpu_claim_family AFTER INSERT ON gpu_claim FOR EACH ROW EXECUTE FUNCTION gpu_claim_family();
