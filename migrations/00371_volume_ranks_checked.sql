-- +goose NO TRANSACTION
-- +goose Up
-- The rows fit the modes of 00370: this reads them without stopping writers.
SET lock_timeout = 0;
SET statement_timeout = 0;
ALTER TABLE volume_mount VALIDATE CONSTRAINT volume_mount_mode_check;
ALTER TABLE data_session VALIDATE CONSTRAINT data_session_mode_check;
RESET lock_timeout;
RESET statement_timeout;
