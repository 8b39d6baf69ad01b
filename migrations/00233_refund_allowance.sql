-- +goose Up
-- What staff let an organisation take back beyond the limit on refunds. Each row counts for 30 days.
CREATE TABLE refund_allowance (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    org_id uuid NOT NULL REFERENCES org (id),
    amount bigint NOT NULL CHECK (amount > 0), -- nano-units, without tax
    currency text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    user_id uuid NOT NULL, -- of the staff
    reason text NOT NULL CHECK (reason <> ''),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX refund_allowance_org ON refund_allowance (org_id, created_at);
