-- +goose Up
-- Up to when an operator's earnings have been made payable.
CREATE TABLE payout_matured (
    org_id      uuid NOT NULL REFERENCES org,
    currency    text NOT NULL,
    through     timestamptz NOT NULL,
    PRIMARY KEY (org_id, currency)
);
-- What was made payable before this table says so in words, to the minute.
INSERT INTO payout_matured (org_id, currency, through)
SELECT a.org_id, a.currency, max(substring(x.memo FROM 'earned until (\d{4}-\d\d-\d\d \d\d:\d\d) UTC$')::timestamp AT TIME ZONE 'UTC')
FROM ledger_account a JOIN ledger_transfer t ON t.debit_account_id = a.id JOIN ledger_tx x ON x.id = t.tx_id
WHERE a.kind = 'host_pending' AND a.org_id IS NOT NULL AND x.kind = 'payout_mature' AND x.memo ~ 'earned until \d{4}-\d\d-\d\d \d\d:\d\d UTC$'
GROUP BY a.org_id, a.currency;

-- A renter who was found linked with the operator of the hosts they rented. What comes from them waits in host_pending until
-- somebody has looked. All amounts are nano-units and sums since the beginning, but held.
CREATE TABLE payout_review (
    id            uuid PRIMARY KEY,
    host_org_id   uuid NOT NULL REFERENCES org,
    renter_org_id uuid NOT NULL REFERENCES org,
    currency      text NOT NULL,
    reasons       text[] NOT NULL CHECK (cardinality(reasons) > 0), -- 'member', 'vat_id', 'legal_name', 'card'
    base          bigint NOT NULL DEFAULT 0 CHECK (base >= 0),      -- was payable before the link was found
    held          bigint NOT NULL DEFAULT 0 CHECK (held >= 0),      -- in review now: of what was earned until through
    released      bigint NOT NULL DEFAULT 0 CHECK (released >= 0),
    refused       bigint NOT NULL DEFAULT 0 CHECK (refused >= 0),
    through       timestamptz NOT NULL,
    decision      text NOT NULL DEFAULT '',                         -- why, of the last one
    decided_at    timestamptz,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (host_org_id, renter_org_id, currency)
);

-- What an operator earned from one renter until a moment, less all that was ever given back to that renter.
CREATE FUNCTION payout_earned_from(host_org uuid, renter_org uuid, of_currency text, until_at timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (coalesce((SELECT sum(t.amount)
                      FROM ledger_account r JOIN ledger_transfer t ON t.debit_account_id = r.id JOIN ledger_account h ON h.id = t.credit_account_id
                      WHERE r.org_id = renter_org AND r.kind IN ('renter_hold', 'renter_wallet') AND r.currency = of_currency
                        AND h.kind = 'host_pending' AND h.org_id = host_org AND t.created_at <= until_at), 0)
          - coalesce((SELECT sum(t.amount)
                      FROM ledger_account r JOIN ledger_transfer t ON t.credit_account_id = r.id JOIN ledger_account h ON h.id = t.debit_account_id
                      WHERE r.org_id = renter_org AND r.kind IN ('renter_hold', 'renter_wallet') AND r.currency = of_currency
                        AND h.kind = 'host_pending' AND h.org_id = host_org), 0))::bigint
$$;

-- Stripe's name for the card's number: the same wherever the number is saved. NULL: saved before it was kept.
ALTER TABLE payment_card ADD COLUMN fingerprint text;
CREATE INDEX payment_card_fingerprint ON payment_card (fingerprint) WHERE fingerprint IS NOT NULL;
