-- +goose Up
-- The run (a start of a lease on a boot of its host) that a meter took segments of last, and the highest number that is
-- stored of it: higher numbers of this run need not be looked for (ADR 114). A server that does not know these columns
-- leaves them as they are; a number that it stored meanwhile is found by the primary key of usage_segment.
ALTER TABLE lease_meter
    ADD COLUMN run_key uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000', -- of start and boot; zero: of none
    ADD COLUMN run_seq bigint NOT NULL DEFAULT 0;
