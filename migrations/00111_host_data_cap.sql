-- +goose Up
-- What leases moved over each host's own line in a calendar month (UTC), and how much its operator lets them. The sums are
-- kept by triggers, in the transaction that a host's report is told in: no writer can forget them, concurrent reports add
-- up, and nobody sums history. What is told counts for the month in which it is told.
CREATE TABLE host_month_traffic (
    host_id    uuid NOT NULL REFERENCES host,
    month      date NOT NULL, -- its first day
    up_bytes   bigint NOT NULL,
    down_bytes bigint NOT NULL,
    PRIMARY KEY (host_id, month)
);

ALTER TABLE host
    ADD COLUMN up_cap_gb bigint CHECK (up_cap_gb > 0),     -- a month, GB of 10^9 bytes; NULL: no cap
    ADD COLUMN down_cap_gb bigint CHECK (down_cap_gb > 0),
    ADD COLUMN capped_until timestamptz;                   -- the cap is used up: no new leases before then
CREATE INDEX host_capped ON host (capped_until) WHERE capped_until IS NOT NULL;

-- A sum that no line can reach stays where it is: what a host says must not keep its report from being taken.
-- +goose StatementBegin
CREATE FUNCTION sum_month_traffic() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO host_month_traffic AS m (host_id, month, up_bytes, down_bytes)
    VALUES (NEW.host_id, date_trunc('month', NEW.last_at AT TIME ZONE 'UTC')::date,
            NEW.up_bytes - coalesce(OLD.up_bytes, 0), NEW.down_bytes - coalesce(OLD.down_bytes, 0))
    ON CONFLICT (host_id, month) DO UPDATE
    SET up_bytes = least(m.up_bytes::numeric + excluded.up_bytes, 9e18)::bigint,
        down_bytes = least(m.down_bytes::numeric + excluded.down_bytes, 9e18)::bigint;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER lease_traffic_begun AFTER INSERT ON lease_traffic FOR EACH ROW
    WHEN (NEW.up_bytes > 0 OR NEW.down_bytes > 0) EXECUTE FUNCTION sum_month_traffic();
CREATE TRIGGER lease_traffic_grown AFTER UPDATE ON lease_traffic FOR EACH ROW
    WHEN (NEW.up_bytes > OLD.up_bytes OR NEW.down_bytes > OLD.down_bytes) EXECUTE FUNCTION sum_month_traffic();

-- Of the month in which this comes, what begun in it is known.
INSERT INTO host_month_traffic (host_id, month, up_bytes, down_bytes)
SELECT host_id, date_trunc('month', first_at AT TIME ZONE 'UTC')::date,
       least(sum(up_bytes), 9e18)::bigint, least(sum(down_bytes), 9e18)::bigint
FROM lease_traffic
WHERE first_at >= date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
GROUP BY 1, 2;

CREATE TRIGGER host_cap_noted AFTER UPDATE ON host FOR EACH ROW
    WHEN (OLD.capped_until IS DISTINCT FROM NEW.capped_until) EXECUTE FUNCTION note_host();
