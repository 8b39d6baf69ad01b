-- +goose Up
-- Documents that the law makes us keep are erased when their retention is over, and by the job that does it alone: it says
-- so in its transaction (muster.retention).
-- +goose StatementBegin
CREATE FUNCTION retention_over(issued timestamptz) RETURNS boolean LANGUAGE sql AS $$
    -- Ten years from the end of the calendar year: the longest that a member state of the EU asks for invoices.
    SELECT coalesce(current_setting('muster.retention', true), '') = 'on'
       AND clock_timestamp() >= make_timestamptz(extract(year FROM issued AT TIME ZONE 'UTC')::integer + 11, 1, 1, 0, 0, 0, 'UTC')
$$;

CREATE FUNCTION guard_retained() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.content = '{"erased": true}'::jsonb AND to_jsonb(NEW) - 'content' = to_jsonb(OLD) - 'content' AND retention_over(OLD.issued_at) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% on % is refused: history never changes', TG_OP, TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE OR REPLACE FUNCTION guard_document() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.number IS NULL AND pg_trigger_depth() > 1
       AND (NEW.key, NEW.series, NEW.org_id, NEW.corrects, NEW.content) = (OLD.key, OLD.series, OLD.org_id, OLD.corrects, OLD.content) THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'UPDATE' AND NEW.content = '{"erased": true}'::jsonb AND to_jsonb(NEW) - 'content' = to_jsonb(OLD) - 'content' AND retention_over(OLD.issued_at) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% on document is refused: history never changes', TG_OP USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE FUNCTION guard_tax_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.vat_id = '' AND to_jsonb(NEW) - 'vat_id' = to_jsonb(OLD) - 'vat_id' AND retention_over(OLD.created_at) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% on tax_entry is refused: history never changes', TG_OP USING ERRCODE = 'integrity_constraint_violation';
END $$;
-- +goose StatementEnd

CREATE OR REPLACE TRIGGER receipt_immutable BEFORE UPDATE OR DELETE ON receipt FOR EACH ROW EXECUTE FUNCTION guard_retained();
CREATE OR REPLACE TRIGGER invoice_immutable BEFORE UPDATE OR DELETE ON invoice FOR EACH ROW EXECUTE FUNCTION guard_retained();
CREATE OR REPLACE TRIGGER tax_entry_immutable BEFORE UPDATE OR DELETE ON tax_entry FOR EACH ROW EXECUTE FUNCTION guard_tax_entry();

COMMENT ON TABLE org_legal IS 'Who an org is before the law. A row is erased as a whole. Copies are kept, until their retention is over, in receipt, invoice, document and tax_entry.vat_id, because the law asks for those; a payment keeps the VAT id that decided its tax (topup.tax_vat_id) as long.';
COMMENT ON TABLE document IS 'Rows stay for ever. When its retention is over, a content becomes {"erased": true}.';
