-- +goose Up
-- Which hosts changed in a way that renting sees, one row per change, written by triggers so that no writer can forget.
-- Every replica keeps a view of the fleet in memory and reads again the hosts that changed since its last read. A row is
-- found by the transaction that wrote it: a read with snapshot xmin X has seen every transaction below X, so the next one
-- looks at xid >= X and misses no late committer. (With a clock or a sequence it would: both are drawn before commit.)
CREATE TABLE fleet_change (
    host_id     uuid NOT NULL,
    xid         xid8 NOT NULL DEFAULT pg_current_xact_id(),
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX fleet_change_xid ON fleet_change (xid);
CREATE INDEX fleet_change_at ON fleet_change (changed_at);

-- +goose StatementBegin
CREATE FUNCTION note_host() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fleet_change (host_id) VALUES (NEW.id);
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION note_host_of_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fleet_change (host_id) VALUES (NEW.host_id);
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION note_hosts_of_rows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fleet_change (host_id) SELECT DISTINCT host_id FROM changed;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION note_hosts_of_fabric() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fleet_change (host_id) SELECT id FROM host WHERE fabric_id = NEW.id;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- Not noted: the revision, which every rent raises; heartbeats, which a replica asks for in bulk.
CREATE TRIGGER host_noted AFTER UPDATE ON host FOR EACH ROW
    WHEN ((OLD.name, OLD.region, OLD.fabric_id, OLD.state, OLD.multi_node, OLD.needs_full_report, OLD.blocked, OLD.cpu_cores,
           OLD.ram_mb, OLD.disk_gb, OLD.driver, OLD.cuda_max)
          IS DISTINCT FROM
          (NEW.name, NEW.region, NEW.fabric_id, NEW.state, NEW.multi_node, NEW.needs_full_report, NEW.blocked, NEW.cpu_cores,
           NEW.ram_mb, NEW.disk_gb, NEW.driver, NEW.cuda_max))
    EXECUTE FUNCTION note_host();
CREATE TRIGGER host_status_noted AFTER UPDATE ON host_status FOR EACH ROW
    WHEN ((OLD.connected, OLD.protocol, OLD.net_up_mbps, OLD.net_down_mbps)
          IS DISTINCT FROM (NEW.connected, NEW.protocol, NEW.net_up_mbps, NEW.net_down_mbps))
    EXECUTE FUNCTION note_host_of_row();
CREATE TRIGGER fabric_noted AFTER UPDATE ON fabric FOR EACH ROW
    WHEN ((OLD.name, OLD.busbw_gbps) IS DISTINCT FROM (NEW.name, NEW.busbw_gbps))
    EXECUTE FUNCTION note_hosts_of_fabric();
CREATE TRIGGER gpu_inserted AFTER INSERT ON gpu REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION note_hosts_of_rows();
CREATE TRIGGER gpu_updated AFTER UPDATE ON gpu REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION note_hosts_of_rows();
CREATE TRIGGER gpu_claim_inserted AFTER INSERT ON gpu_claim REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION note_hosts_of_rows();
CREATE TRIGGER gpu_claim_updated AFTER UPDATE ON gpu_claim REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION note_hosts_of_rows();
CREATE TRIGGER offer_inserted AFTER INSERT ON offer REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION note_hosts_of_rows();
CREATE TRIGGER offer_updated AFTER UPDATE ON offer REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION note_hosts_of_rows();
