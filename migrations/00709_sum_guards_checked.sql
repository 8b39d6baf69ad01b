-- +goose NO TRANSACTION
-- +goose Up
-- The meters of 00708 fit its constraint: this reads them without stopping writers.
SET lock_timeout = 0;
SET statement_timeout = 0;
ALTER TABLE data_meter VALIDATE CONSTRAINT data_meter_money;
RESET lock_timeout;
RESET statement_timeout;
