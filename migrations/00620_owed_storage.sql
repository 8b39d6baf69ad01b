-- +goose Up
-- Storage that is not paid for: volumes are hidden before they are erased, and not while a dispute or an invoice is open.
SET LOCAL lock_timeout = '3s';
ALTER TABLE data_meter ADD COLUMN kept_until timestamptz;  -- of unpaid storage: nothing is hidden before; NULL: 30 days of unpaid_since
ALTER TABLE volume ADD COLUMN hidden_at timestamptz;       -- not paid for: cannot be used until it is, and is erased some days later

-- What a stored GB cost in an hour, in nano-units, from when on, and what the meter of the domain stood at then: with the levels this
-- is all that a posting of storage follows from. A server that does not know this table writes no rows; the next one that does
-- begins a row with what the meter stands at.
CREATE TABLE data_price (
    domain_id  uuid NOT NULL REFERENCES data_domain,
    from_at    timestamptz NOT NULL,
    price      bigint NOT NULL CHECK (price >= 0),
    numerator  numeric(60,0) NOT NULL,
    PRIMARY KEY (domain_id, from_at)
);

-- What storage is billed by does not change. A correction is a row of its own.
CREATE TRIGGER data_level_immutable BEFORE UPDATE OR DELETE ON data_level FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER data_level_no_truncate BEFORE TRUNCATE ON data_level EXECUTE FUNCTION refuse_change();
CREATE TRIGGER data_price_immutable BEFORE UPDATE OR DELETE ON data_price FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER data_price_no_truncate BEFORE TRUNCATE ON data_price EXECUTE FUNCTION refuse_change();
