-- +goose Up
-- What an operator has decided about the bond of its hosts. Without a row the defaults hold.
CREATE TABLE bond_terms (
    org_id           uuid PRIMARY KEY REFERENCES org,
    retain_ppm       integer NOT NULL DEFAULT 250000 CHECK (retain_ppm BETWEEN 0 AND 1000000), -- of what matures
    accept_unbonded  boolean NOT NULL DEFAULT false,
    liability_max    bigint CHECK (liability_max >= 0),     -- nano-units, of one lease; NULL = no limit
    changed_by       uuid REFERENCES app_user,
    changed_at       timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What of an operator's bond came out of its wallet and has not gone back there: it never leaves as a payout.
CREATE TABLE bond_deposited (
    org_id    uuid NOT NULL REFERENCES org,
    currency  text NOT NULL,
    amount    bigint NOT NULL CHECK (amount >= 0),          -- nano-units
    PRIMARY KEY (org_id, currency)
);

-- A host's own limit, beside its operator's.
CREATE TABLE bond_host_terms (
    host_id        uuid PRIMARY KEY REFERENCES host,
    liability_max  bigint NOT NULL CHECK (liability_max >= 0),
    changed_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What is frozen when a lease of a gang is rented. Amounts are nano-units.
CREATE TABLE lease_bond (
    lease_id     uuid PRIMARY KEY REFERENCES lease,
    cluster_id   uuid NOT NULL,
    host_id      uuid NOT NULL,
    org_id       uuid NOT NULL REFERENCES org,   -- the operator
    currency     text NOT NULL,
    srate        bigint NOT NULL CHECK (srate >= 0),         -- micro-units per hour: what a second of standby of it is worth
    amount       bigint NOT NULL CHECK (amount >= 0),        -- what the lease is liable for; 0: for nothing
    reserved     bigint NOT NULL DEFAULT 0 CHECK (reserved >= 0),  -- moved into its bond_hold since the beginning
    released     bigint NOT NULL DEFAULT 0 CHECK (released >= 0),  -- moved back since the beginning
    short_told   boolean NOT NULL DEFAULT false,             -- the operator knows that it could not be refilled
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    released_at  timestamptz                                 -- once everything against it is decided
);
CREATE INDEX lease_bond_cluster ON lease_bond (cluster_id);
CREATE INDEX lease_bond_open ON lease_bond (org_id) WHERE released_at IS NULL;

-- What one lease is paid from the bond of another for standing by. All three are sums since the beginning.
CREATE TABLE standby (
    victim       uuid NOT NULL REFERENCES lease,
    culprit      uuid NOT NULL REFERENCES lease,
    cluster_id   uuid NOT NULL,
    ms           bigint NOT NULL DEFAULT 0 CHECK (ms >= 0),
    numerator    numeric NOT NULL DEFAULT 0 CHECK (numerator >= 0),  -- Σ srate × ms
    posted       bigint NOT NULL DEFAULT 0 CHECK (posted >= 0),      -- nano-units, from the culprit's bond
    host_posted  bigint NOT NULL DEFAULT 0 CHECK (host_posted >= 0), -- of it, the victim's share
    posted_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (victim, culprit),
    CHECK (victim <> culprit)
);
CREATE INDEX standby_culprit ON standby (culprit);
CREATE INDEX standby_cluster ON standby (cluster_id);

-- What one lease is paid by the platform for standing by while no host was to blame.
CREATE TABLE standby_relief (
    victim       uuid PRIMARY KEY REFERENCES lease,
    cluster_id   uuid NOT NULL,
    ms           bigint NOT NULL DEFAULT 0 CHECK (ms >= 0),
    host_posted  bigint NOT NULL DEFAULT 0 CHECK (host_posted >= 0),
    posted_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX standby_relief_cluster ON standby_relief (cluster_id);

-- As before, and what was earned from an organisation's bond.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION payout_earned_from(host_org uuid, renter_org uuid, of_currency text, until_at timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT (coalesce((SELECT sum(t.amount)
                      FROM ledger_account r JOIN ledger_transfer t ON t.debit_account_id = r.id JOIN ledger_account h ON h.id = t.credit_account_id
                      WHERE r.org_id = renter_org AND r.kind IN ('renter_hold', 'renter_wallet', 'bond_hold') AND r.currency = of_currency
                        AND h.kind = 'host_pending' AND h.org_id = host_org AND t.created_at <= until_at), 0)
          - coalesce((SELECT sum(t.amount)
                      FROM ledger_account r JOIN ledger_transfer t ON t.credit_account_id = r.id JOIN ledger_account h ON h.id = t.debit_account_id
                      WHERE r.org_id = renter_org AND r.kind IN ('renter_hold', 'renter_wallet', 'bond_hold') AND r.currency = of_currency
                        AND h.kind = 'host_pending' AND h.org_id = host_org), 0))::bigint
$$;
-- +goose StatementEnd
