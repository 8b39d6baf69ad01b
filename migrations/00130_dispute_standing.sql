-- +goose Up
-- What a disputed or charged-back payment still claims of a wallet. It is part of the balance and cannot be spent: the floor is
-- reserved - credit, or where the balance stands while that is lower, so that whatever is credited later counts towards it.
ALTER TABLE ledger_balance ADD COLUMN reserved bigint NOT NULL DEFAULT 0;                          -- nano-units, never below 0

-- What a lost dispute cost the platform and its org has not repaid yet. Disputes lost before this column existed claim nothing.
ALTER TABLE dispute
    ADD COLUMN debt bigint NOT NULL DEFAULT 0 CHECK (debt >= 0),                                  -- nano-units
    ADD COLUMN collect_at timestamptz NOT NULL DEFAULT 'epoch';                               -- when its claim was last looked at
CREATE INDEX dispute_claims ON dispute (org_id) WHERE kind = 'dispute' AND (state = 'open' OR debt > 0);

-- Whether an org may pay in and rent as usual. An org without a row may.
CREATE TABLE payment_standing (
    org_id      uuid PRIMARY KEY REFERENCES org,
    state       text NOT NULL CHECK (state IN ('ok', 'disputed', 'suspended')),
    forgiven    integer NOT NULL DEFAULT 0 CHECK (forgiven >= 0),   -- lost disputes that no longer count towards a suspension
    note        text NOT NULL DEFAULT '',                           -- why they were forgiven
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX payment_standing_not_ok ON payment_standing (changed_at) WHERE state <> 'ok';
INSERT INTO payment_standing (org_id, state)
SELECT org_id, CASE WHEN count(*) FILTER (WHERE state = 'lost') >= 3 THEN 'suspended' ELSE 'disputed' END
FROM dispute WHERE kind = 'dispute' AND state IN ('open', 'lost')
GROUP BY org_id
HAVING count(*) FILTER (WHERE state = 'lost') >= 3 OR count(*) FILTER (WHERE state = 'open') > 0;

-- Cards whose owner took a payment back and was right. No org may pay with them.
CREATE TABLE blocked_card (
    fingerprint text PRIMARY KEY,                       -- Stripe's name for the card's number
    dispute_id  text NOT NULL REFERENCES dispute,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
