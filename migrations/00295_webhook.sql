-- +goose Up
-- An organisation's webhooks receive its notices by HTTP. A delivery is written with its notice, in one transaction.
CREATE TABLE webhook (
    id              uuid PRIMARY KEY,
    org_id          uuid NOT NULL REFERENCES org,
    url             text NOT NULL CHECK (length(url) <= 2000),
    secret          bytea NOT NULL,                             -- sealed
    created_by      uuid NOT NULL REFERENCES app_user,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    disabled_at     timestamptz,                                -- receives nothing until it is enabled again
    disabled_why    text NOT NULL DEFAULT ''
);
CREATE INDEX webhook_org ON webhook (org_id, id);
CREATE INDEX webhook_created_by ON webhook (created_by);

CREATE TABLE webhook_delivery (
    webhook_id      uuid NOT NULL REFERENCES webhook ON DELETE CASCADE,
    notice_id       uuid NOT NULL REFERENCES notice ON DELETE CASCADE,
    attempts        integer NOT NULL DEFAULT 0,
    next_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    delivered_at    timestamptz,
    failed_at       timestamptz,                                -- given up; error says why
    status          integer NOT NULL DEFAULT 0,                 -- of the last answer; 0: there was none
    error           text NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (webhook_id, notice_id)
);
CREATE INDEX webhook_delivery_due ON webhook_delivery (next_at) WHERE delivered_at IS NULL AND failed_at IS NULL;
CREATE INDEX webhook_delivery_notice ON webhook_delivery (notice_id);
CREATE INDEX webhook_delivery_done ON webhook_delivery (created_at) WHERE delivered_at IS NOT NULL OR failed_at IS NOT NULL;
