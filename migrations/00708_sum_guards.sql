-- +goose Up
-- What operators earned is written by the transfers that pay it, and by nothing else. Its hours are read for 540 days, and deleted later.
CREATE TRIGGER operator_earning_of_transfers BEFORE INSERT OR UPDATE OR DELETE ON operator_earning FOR EACH ROW
    WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER operator_earning_hour_of_transfers BEFORE INSERT OR UPDATE ON operator_earning_hour FOR EACH ROW
    WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER operator_earning_hour_kept BEFORE DELETE ON operator_earning_hour FOR EACH ROW
    WHEN (OLD.hour > clock_timestamp() - interval '540 days') EXECUTE FUNCTION refuse_change();
CREATE TRIGGER operator_earning_no_truncate BEFORE TRUNCATE ON operator_earning EXECUTE FUNCTION refuse_change();
CREATE TRIGGER operator_earning_hour_no_truncate BEFORE TRUNCATE ON operator_earning_hour EXECUTE FUNCTION refuse_change();

-- No more is charged for what is stored than its meter says: numerator is in byte-microseconds times nano-units per GB-hour.
ALTER TABLE data_meter ADD CONSTRAINT data_meter_money CHECK (posted >= 0 AND posted::numeric * 3600000000000000000 <= numerator) NOT VALID;

-- +goose Down
ALTER TABLE data_meter DROP CONSTRAINT data_meter_money;
DROP TRIGGER operator_earning_of_transfers ON operator_earning;
DROP TRIGGER operator_earning_no_truncate ON operator_earning;
DROP TRIGGER operator_earning_hour_of_transfers ON operator_earning_hour;
DROP TRIGGER operator_earning_hour_kept ON operator_earning_hour;
DROP TRIGGER operator_earning_hour_no_truncate ON operator_earning_hour;
