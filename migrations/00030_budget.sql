-- +goose Up
-- What an org lets itself, or one of its projects, spend. Everything about a row is read and changed under the lock of
-- the org's wallet, which every authorisation takes anyway.
CREATE TABLE budget (
    id              uuid PRIMARY KEY,
    org_id          uuid NOT NULL REFERENCES org,
    project         text NOT NULL DEFAULT '',    -- '' = the whole org
    cap             bigint CHECK (cap >= 0),     -- nano-units that may be spent or held; NULL = no cap
    max_rate        bigint CHECK (max_rate > 0), -- micro-units per hour of one cluster; NULL = any
    max_duration_s  bigint CHECK (max_duration_s > 0), -- of one cluster; NULL = any
    committed       bigint NOT NULL,             -- nano-units spent or held since created_at, and held then
    currency        text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (org_id, project)
);
