-- +goose Up
-- The next number of each series of documents and year. The trigger below takes a row's lock when the issuing
-- transaction commits, after all its other locks, so numbers have no gaps and follow the order of issue.
CREATE TABLE document_number (
    series   text NOT NULL,
    year     integer NOT NULL,
    next     bigint NOT NULL CHECK (next > 1),
    last_at  timestamptz NOT NULL,               -- when the last one was issued; never falls within a year
    PRIMARY KEY (series, year)
);

-- The register of all documents with a number of a series. Rows stay for ever, so that a gap can be told from a
-- document whose content was erased.
CREATE TABLE document (
    key        text PRIMARY KEY,                 -- what it documents, once: 'receipt:top_…', 'credit_note:<ledger key>'
    series     text NOT NULL CHECK (series IN ('receipt', 'credit_note', 'self_billing')),
    org_id     uuid NOT NULL REFERENCES org,
    corrects   text NOT NULL DEFAULT '',         -- key of the document that it corrects or cancels; '' = none of the register
    year       integer,                          -- year, number and issued_at are set at the commit
    number     bigint,
    issued_at  timestamptz,
    content    jsonb NOT NULL,                   -- '{}' for receipts, whose content is in receipt
    CHECK ((year IS NULL) = (number IS NULL) AND (number IS NULL) = (issued_at IS NULL)),
    UNIQUE (series, year, number)
);
CREATE INDEX document_unnumbered ON document (series) WHERE number IS NULL;
CREATE INDEX document_org ON document (org_id, series, year, number);

-- +goose StatementBegin
CREATE FUNCTION number_document() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    y integer := extract(year FROM clock_timestamp() AT TIME ZONE 'UTC');
    d record;
    n bigint;
    t timestamptz;
BEGIN
    -- The first call numbers all documents of the transaction, series by series, so that two transactions that issue
    -- documents of several series lock these in one order. Only the transaction's own have no number yet.
    FOR d IN SELECT x.key, x.series FROM document x WHERE x.number IS NULL ORDER BY x.series, x.ctid LOOP
        -- Who waits here over midnight of New Year's Eve gets a number of the old year, and is dated in it.
        INSERT INTO document_number AS s (series, year, next, last_at) VALUES (d.series, y, 2, clock_timestamp())
        ON CONFLICT (series, year) DO UPDATE SET next = s.next + 1,
            last_at = greatest(s.last_at, least(clock_timestamp(), make_timestamptz(y + 1, 1, 1, 0, 0, 0, 'UTC') - interval '1 microsecond'))
        RETURNING s.next - 1, s.last_at INTO n, t;
        UPDATE document SET year = y, number = n, issued_at = t WHERE key = d.key;
    END LOOP;
    RETURN NULL;
END $$;

CREATE FUNCTION guard_document() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.number IS NULL AND pg_trigger_depth() > 1
       AND (NEW.key, NEW.series, NEW.org_id, NEW.corrects, NEW.content) = (OLD.key, OLD.series, OLD.org_id, OLD.corrects, OLD.content) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% on document is refused: history never changes', TG_OP USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE FUNCTION guard_document_number() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() > 1 AND (TG_OP = 'INSERT' OR TG_OP = 'UPDATE') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% on document_number is refused: only issuing a document takes a number', TG_OP USING ERRCODE = 'integrity_constraint_violation';
END $$;
-- +goose StatementEnd

CREATE CONSTRAINT TRIGGER document_numbered AFTER INSERT ON document DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION number_document();
CREATE TRIGGER document_immutable BEFORE UPDATE OR DELETE ON document FOR EACH ROW EXECUTE FUNCTION guard_document();
CREATE TRIGGER document_no_truncate BEFORE TRUNCATE ON document EXECUTE FUNCTION refuse_change();
CREATE TRIGGER document_number_guard BEFORE INSERT OR UPDATE OR DELETE ON document_number FOR EACH ROW EXECUTE FUNCTION guard_document_number();
CREATE TRIGGER document_number_no_truncate BEFORE TRUNCATE ON document_number EXECUTE FUNCTION refuse_change();
