-- +goose Up
-- How far each series of documents was found to be without a gap and in order of issue. Documents never change, so the check of a series reads
-- those after through; those before are read again now and then, one series after the other.
CREATE TABLE document_checked (
    series      text NOT NULL,
    year        integer NOT NULL,
    through     bigint NOT NULL CHECK (through > 0),
    last_at     timestamptz NOT NULL,                   -- when document through was issued
    checked_at  timestamptz NOT NULL DEFAULT clock_timestamp(), -- when all of them were last read
    problem     text NOT NULL DEFAULT '',               -- what was wrong then
    PRIMARY KEY (series, year)
);
CREATE TRIGGER document_checked_grows BEFORE UPDATE ON document_checked FOR EACH ROW
    WHEN (NEW.series <> OLD.series OR NEW.year <> OLD.year OR NEW.through < OLD.through) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER document_checked_kept BEFORE DELETE ON document_checked FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- +goose Down
DROP TABLE document_checked;
