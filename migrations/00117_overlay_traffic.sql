-- +goose Up
-- What each run of a lease exchanged with the other ranks of its cluster: what of it went over the host's own line, to ranks
-- outside the host's networks and relays, which counts for its data cap; and all of it. 0 of hosts that do not count it.
ALTER TABLE lease_traffic
    ADD COLUMN overlay_up_bytes bigint NOT NULL DEFAULT 0,
    ADD COLUMN overlay_down_bytes bigint NOT NULL DEFAULT 0,
    ADD COLUMN ranks_sent_bytes bigint NOT NULL DEFAULT 0,
    ADD COLUMN ranks_received_bytes bigint NOT NULL DEFAULT 0;

ALTER TABLE host_month_traffic
    ADD COLUMN overlay_up_bytes bigint NOT NULL DEFAULT 0, -- sent, and not in up_bytes
    ADD COLUMN overlay_down_bytes bigint NOT NULL DEFAULT 0;

-- As before, and the overlay's part.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sum_month_traffic() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO host_month_traffic AS m (host_id, month, up_bytes, down_bytes, overlay_up_bytes, overlay_down_bytes)
    VALUES (NEW.host_id, date_trunc('month', NEW.last_at AT TIME ZONE 'UTC')::date,
            NEW.up_bytes - coalesce(OLD.up_bytes, 0), NEW.down_bytes - coalesce(OLD.down_bytes, 0),
            NEW.overlay_up_bytes - coalesce(OLD.overlay_up_bytes, 0), NEW.overlay_down_bytes - coalesce(OLD.overlay_down_bytes, 0))
    ON CONFLICT (host_id, month) DO UPDATE
    SET up_bytes = least(m.up_bytes::numeric + excluded.up_bytes, 9e18)::bigint,
        down_bytes = least(m.down_bytes::numeric + excluded.down_bytes, 9e18)::bigint,
        overlay_up_bytes = least(m.overlay_up_bytes::numeric + excluded.overlay_up_bytes, 9e18)::bigint,
        overlay_down_bytes = least(m.overlay_down_bytes::numeric + excluded.overlay_down_bytes, 9e18)::bigint;
    RETURN NULL;
END $$;
-- +goose StatementEnd
DROP TRIGGER lease_traffic_begun ON lease_traffic;
DROP TRIGGER lease_traffic_grown ON lease_traffic;
CREATE TRIGGER lease_traffic_begun AFTER INSERT ON lease_traffic FOR EACH ROW
    WHEN (NEW.up_bytes > 0 OR NEW.down_bytes > 0 OR NEW.overlay_up_bytes > 0 OR NEW.overlay_down_bytes > 0)
    EXECUTE FUNCTION sum_month_traffic();
CREATE TRIGGER lease_traffic_grown AFTER UPDATE ON lease_traffic FOR EACH ROW
    WHEN (NEW.up_bytes > OLD.up_bytes OR NEW.down_bytes > OLD.down_bytes
          OR NEW.overlay_up_bytes > OLD.overlay_up_bytes OR NEW.overlay_down_bytes > OLD.overlay_down_bytes)
    EXECUTE FUNCTION sum_month_traffic();
