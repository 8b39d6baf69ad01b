-- +goose Up
-- What bills are verified with does not change: the prices of a lease, the anchors of a host's clock, and segments at once.
CREATE TRIGGER lease_price_frozen BEFORE UPDATE ON lease_price FOR EACH ROW
    WHEN (OLD.lease_id IS DISTINCT FROM NEW.lease_id OR OLD.rate IS DISTINCT FROM NEW.rate OR OLD.items IS DISTINCT FROM NEW.items)
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER lease_price_kept BEFORE DELETE ON lease_price FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER lease_price_no_truncate BEFORE TRUNCATE ON lease_price EXECUTE FUNCTION refuse_change();
CREATE TRIGGER time_anchor_immutable BEFORE UPDATE OR DELETE ON time_anchor FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER time_anchor_no_truncate BEFORE TRUNCATE ON time_anchor EXECUTE FUNCTION refuse_change();
CREATE TRIGGER usage_segment_no_truncate BEFORE TRUNCATE ON usage_segment EXECUTE FUNCTION refuse_change();
CREATE TRIGGER segment_batch_no_truncate BEFORE TRUNCATE ON segment_batch EXECUTE FUNCTION refuse_change();
-- A credit only grows.
CREATE TRIGGER service_credit_grows BEFORE UPDATE ON service_credit FOR EACH ROW
    WHEN (OLD.lease_id IS DISTINCT FROM NEW.lease_id OR OLD.cluster_id IS DISTINCT FROM NEW.cluster_id
          OR OLD.from_ms IS DISTINCT FROM NEW.from_ms OR OLD.through_ms IS DISTINCT FROM NEW.through_ms
          OR NEW.credited < OLD.credited OR NEW.host_part < OLD.host_part)
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER service_credit_kept BEFORE DELETE ON service_credit FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER service_credit_no_truncate BEFORE TRUNCATE ON service_credit EXECUTE FUNCTION refuse_change();
