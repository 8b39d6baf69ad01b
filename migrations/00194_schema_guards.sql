-- +goose Up
-- A closed window never opens again and never changes: what is billed is the part of it that segments prove.
CREATE TRIGGER cluster_window_closed BEFORE UPDATE ON cluster_window FOR EACH ROW
    WHEN (OLD.closed_ms IS NOT NULL OR OLD.cluster_id IS DISTINCT FROM NEW.cluster_id OR OLD.n IS DISTINCT FROM NEW.n)
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER cluster_window_kept BEFORE DELETE ON cluster_window FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER cluster_window_no_truncate BEFORE TRUNCATE ON cluster_window EXECUTE FUNCTION refuse_change();

-- New rows are checked from here on; 00195 checks those that are there.
ALTER TABLE usage_segment ADD CONSTRAINT usage_segment_lease FOREIGN KEY (lease_id) REFERENCES lease NOT VALID;
ALTER TABLE ledger_account ADD CONSTRAINT ledger_account_currency CHECK (currency ~ '^[A-Z]{3}$') NOT VALID;
ALTER TABLE lease ADD CONSTRAINT lease_currency CHECK (currency ~ '^[A-Z]{3}$') NOT VALID;
ALTER TABLE lease ADD CONSTRAINT lease_share CHECK (host_share_ppm BETWEEN 0 AND 1000000) NOT VALID;
ALTER TABLE lease_meter ADD CONSTRAINT lease_meter_money CHECK (numerator >= 0 AND host_posted BETWEEN 0 AND posted) NOT VALID;
ALTER TABLE lease_meter ADD CONSTRAINT lease_meter_time CHECK (billed_ms >= 0 AND posted_billed_ms >= 0) NOT VALID;
