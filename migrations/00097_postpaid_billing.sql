-- +goose Up
ALTER TABLE postpaid_org
    ADD COLUMN charges      bigint NOT NULL DEFAULT 0,      -- rows of postpaid_charge
    ADD COLUMN charged      bigint NOT NULL DEFAULT 0,      -- nano-units, all of them together
    ADD COLUMN charged_at   timestamptz,                    -- when it was last looked at
    ADD COLUMN subscription text UNIQUE,                    -- sub_…; NULL while there is none
    ADD COLUMN period_start timestamptz,                    -- of the subscription, as Stripe last said
    ADD COLUMN period_end   timestamptz,
    ADD COLUMN unsubscribed_at timestamptz,                 -- when its end was asked for
    ADD COLUMN asked_at     timestamptz NOT NULL DEFAULT clock_timestamp();   -- when Stripe was last asked without an event

-- What was used on credit, an hour at most in each, in the order in which it was billed.
CREATE TABLE postpaid_charge (
    org_id      uuid NOT NULL REFERENCES org,
    n           bigint NOT NULL,
    at          timestamptz NOT NULL,
    amount      bigint NOT NULL CHECK (amount > 0),         -- nano-units
    charged     bigint NOT NULL,                            -- with all before it
    micro       bigint NOT NULL CHECK (micro >= 0),         -- what of it the meter was told: the growth of floor(charged / 1000)
    transfer_id uuid NOT NULL UNIQUE REFERENCES ledger_transfer,
    PRIMARY KEY (org_id, n)
);
CREATE INDEX postpaid_charge_at ON postpaid_charge (org_id, at);
CREATE TRIGGER postpaid_charge_immutable BEFORE UPDATE OR DELETE ON postpaid_charge FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER postpaid_charge_no_truncate BEFORE TRUNCATE ON postpaid_charge EXECUTE FUNCTION refuse_change();

-- Stripe's invoices, as Stripe last said.
CREATE TABLE postpaid_invoice (
    id           text PRIMARY KEY,                          -- in_…
    org_id       uuid NOT NULL REFERENCES org,
    currency     text NOT NULL,
    subscription text NOT NULL DEFAULT '',
    number       text NOT NULL DEFAULT '',
    state        text NOT NULL,                             -- draft, open, paid, void, uncollectible
    period_start timestamptz NOT NULL,
    period_end   timestamptz NOT NULL,
    charged      bigint NOT NULL,                           -- nano-units, the books' at the period's end, since the beginning
    due          bigint NOT NULL,                           -- cents, what the books want it to be
    total        bigint NOT NULL,                           -- cents, what it is
    metered      bigint NOT NULL,                           -- of it, by Stripe's meter
    paid         bigint NOT NULL DEFAULT 0,                 -- cents
    attempts     integer NOT NULL DEFAULT 0,                -- to charge the card
    url          text NOT NULL DEFAULT '',
    due_at       timestamptz,
    made_at      timestamptz NOT NULL,
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX postpaid_invoice_org ON postpaid_invoice (org_id, period_end);
