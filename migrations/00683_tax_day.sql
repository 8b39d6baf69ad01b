-- +goose Up
-- Frozen totals of the tax book: taxes less what was paid to tax offices, by day (UTC). They are derived from rows that never change, and are
-- compared with them again and again, one day after the other.
CREATE TABLE tax_day (
    currency    text NOT NULL,
    day         date NOT NULL,
    change      bigint NOT NULL,                        -- nano-units
    after       bigint NOT NULL,                        -- of all days up to it
    closed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    checked_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    problem     text NOT NULL DEFAULT '',               -- what did not agree then
    PRIMARY KEY (currency, day)
);
CREATE INDEX tax_day_checked ON tax_day (checked_at);
CREATE TRIGGER tax_day_frozen BEFORE UPDATE ON tax_day FOR EACH ROW
    WHEN ((OLD.currency, OLD.day, OLD.change, OLD.after, OLD.closed_at) IS DISTINCT FROM (NEW.currency, NEW.day, NEW.change, NEW.after, NEW.closed_at))
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER tax_day_kept BEFORE DELETE ON tax_day FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER tax_day_no_truncate BEFORE TRUNCATE ON tax_day EXECUTE FUNCTION refuse_change();

-- +goose Down
DROP TABLE tax_day;
