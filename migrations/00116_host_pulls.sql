-- +goose Up
-- What hosts receive of images over their own lines: it counts for the data cap, beside what leases exchange. A host tells
-- of one counter, which only rises; by another name it is another counter, that began at 0.
CREATE TABLE host_pulls (
    host_id uuid PRIMARY KEY REFERENCES host,
    counter text NOT NULL,   -- the name of its beginning
    bytes   bigint NOT NULL, -- as told last
    last_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

ALTER TABLE host_month_traffic ADD COLUMN pull_bytes bigint NOT NULL DEFAULT 0; -- received, and not in down_bytes

-- As sum_month_traffic: what is told counts for the month in which it is told, and no sum keeps a report from being taken.
-- +goose StatementBegin
CREATE FUNCTION sum_month_pulls() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    more bigint := NEW.bytes - CASE WHEN OLD.counter = NEW.counter THEN OLD.bytes ELSE 0 END;
BEGIN
    IF more > 0 THEN
        INSERT INTO host_month_traffic AS m (host_id, month, up_bytes, down_bytes, pull_bytes)
        VALUES (NEW.host_id, date_trunc('month', NEW.last_at AT TIME ZONE 'UTC')::date, 0, 0, more)
        ON CONFLICT (host_id, month) DO UPDATE
        SET pull_bytes = least(m.pull_bytes::numeric + excluded.pull_bytes, 9e18)::bigint;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER host_pulls_grown AFTER INSERT OR UPDATE ON host_pulls FOR EACH ROW EXECUTE FUNCTION sum_month_pulls();
