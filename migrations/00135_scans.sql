-- +goose Up
-- Every bounded scan of a background job moves the rows that it looked at, so that rows that do not get done never keep the
-- job from reaching the others. Each column is the earliest time of the row's next look. The constant default rewrites no table.
ALTER TABLE auto_topup ADD COLUMN next_at timestamptz NOT NULL DEFAULT 'epoch';
ALTER TABLE topup ADD COLUMN poll_at timestamptz NOT NULL DEFAULT 'epoch';
ALTER TABLE refund ADD COLUMN poll_at timestamptz NOT NULL DEFAULT 'epoch';
-- Stripe has answered that the row's key was used with other parameters: what was done under it is looked up.
ALTER TABLE stripe_outbox ADD COLUMN mismatch boolean NOT NULL DEFAULT false;
ALTER TABLE stripe_balance ADD COLUMN next_at timestamptz NOT NULL DEFAULT 'epoch';
ALTER TABLE stripe_balance ADD COLUMN attempts integer NOT NULL DEFAULT 0;
ALTER TABLE payout_account ADD COLUMN poll_at timestamptz NOT NULL DEFAULT 'epoch';
ALTER TABLE payout_account ADD COLUMN pay_at timestamptz NOT NULL DEFAULT 'epoch';
ALTER TABLE postpaid_org ADD COLUMN charge_at timestamptz NOT NULL DEFAULT 'epoch';

-- Rows that a background job could not process, for the platform's administrators. The row itself stays where it is and is
-- retried; its entry here disappears when it succeeds.
CREATE TABLE dead_letter (
    queue         text NOT NULL,                    -- the job, such as 'stripe_event'
    ref           text NOT NULL,                    -- the row
    attempts      integer NOT NULL DEFAULT 1,       -- failed attempts since failing_since
    error         text NOT NULL,                    -- of the last attempt
    failing_since timestamptz NOT NULL DEFAULT clock_timestamp(),
    failed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    parked_at     timestamptz,                      -- set when it failed for three days: administrators were notified
    PRIMARY KEY (queue, ref)
);
CREATE INDEX dead_letter_since ON dead_letter (failing_since);

-- Logs of ended runs that could not be fetched from their hosts, and when the next attempt is.
CREATE TABLE node_log_retry (
    node_id   uuid NOT NULL,
    epoch     integer NOT NULL,
    attempts  integer NOT NULL DEFAULT 1,
    next_at   timestamptz NOT NULL,
    PRIMARY KEY (node_id, epoch)
);
