-- +goose Up
-- Volumes: data that follows its renter. Packs of sealed chunks lie in a store; here is which packs there are, which snapshot
-- needs which, and who may write. Files and chunks are not here: a terabyte has four million chunks.

-- Where chunks are shared: the volumes of a domain have one key. A pack's number is never used twice.
CREATE TABLE data_domain (
    id          uuid PRIMARY KEY,
    org_id      uuid NOT NULL REFERENCES org,
    key_sealed  bytea,                            -- NULL: erased, nobody can read its packs any more
    next_pack   bigint NOT NULL DEFAULT 1,
    bytes       bigint NOT NULL DEFAULT 0 CHECK (bytes >= 0),        -- of live packs: what is billed
    granted     bigint NOT NULL DEFAULT 0 CHECK (granted >= 0),      -- of granted packs: they count for limits
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    erased_at   timestamptz,
    CHECK ((key_sealed IS NULL) = (erased_at IS NOT NULL))
);
CREATE INDEX data_domain_org ON data_domain (org_id);

CREATE TABLE volume (
    id            uuid PRIMARY KEY,
    org_id        uuid NOT NULL REFERENCES org,
    domain_id     uuid NOT NULL REFERENCES data_domain,
    name          text NOT NULL,
    size_limit    bigint NOT NULL CHECK (size_limit > 0),            -- bytes
    keep_last     integer NOT NULL,                                  -- snapshots that are kept whatever their age
    head_seq      bigint NOT NULL DEFAULT 0,
    created_by    uuid NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    deleted_at    timestamptz,
    -- The snapshot that the renter requested and the writer has not committed yet.
    wanted_id     uuid,
    wanted_at     timestamptz
);
CREATE UNIQUE INDEX volume_name ON volume (org_id, name) WHERE deleted_at IS NULL;
CREATE INDEX volume_domain ON volume (domain_id);

-- A run of a lease that has a volume, or an upload without a lease.
CREATE TABLE data_session (
    id            uuid PRIMARY KEY,
    volume_id     uuid NOT NULL REFERENCES volume,
    domain_id     uuid NOT NULL REFERENCES data_domain,
    mode          text NOT NULL CHECK (mode IN ('rw', 'ro')),
    lease_id      uuid,                                              -- NULL: an upload
    epoch         integer NOT NULL DEFAULT 0,
    host_id       uuid,
    base_seq      bigint NOT NULL,                                   -- its last commit, or the head when it was opened; 0: none
    base_packs    bytea NOT NULL,                                    -- packs that it may refer to: not collected while it lives
    opened_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at    timestamptz NOT NULL,
    closed_at     timestamptz,
    pending_bytes bigint NOT NULL DEFAULT 0,
    flush_eta_s   bigint NOT NULL DEFAULT 0,
    sending_id    uuid,
    sent          bigint NOT NULL DEFAULT 0,
    total         bigint NOT NULL DEFAULT 0,
    problem       text NOT NULL DEFAULT '',
    lost_bytes    bigint NOT NULL DEFAULT 0,
    reported_at   timestamptz
);
CREATE INDEX data_session_volume ON data_session (volume_id, opened_at);
CREATE INDEX data_session_live ON data_session (domain_id) WHERE closed_at IS NULL;
CREATE UNIQUE INDEX data_session_run ON data_session (volume_id, lease_id, epoch) WHERE lease_id IS NOT NULL;

-- Who writes a volume: one cluster, or one upload, at a time.
CREATE TABLE volume_writer (
    volume_id   uuid PRIMARY KEY REFERENCES volume,
    cluster_id  uuid,
    session_id  uuid REFERENCES data_session,                        -- NULL until the host opened it
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (cluster_id IS NOT NULL OR session_id IS NOT NULL)
);

-- The volumes that a cluster has.
CREATE TABLE volume_mount (
    cluster_id  uuid NOT NULL REFERENCES cluster,
    volume_id   uuid NOT NULL REFERENCES volume,
    mode        text NOT NULL CHECK (mode IN ('rw', 'ro')),
    PRIMARY KEY (cluster_id, volume_id)
);
CREATE INDEX volume_mount_volume ON volume_mount (volume_id);

CREATE TABLE data_reservation (
    domain_id   uuid NOT NULL REFERENCES data_domain,
    first       bigint NOT NULL,
    count       integer NOT NULL CHECK (count > 0),
    session_id  uuid NOT NULL REFERENCES data_session,
    PRIMARY KEY (domain_id, first)
);
CREATE INDEX data_reservation_session ON data_reservation (session_id);

CREATE TABLE data_pack (
    domain_id   uuid NOT NULL REFERENCES data_domain,
    n           bigint NOT NULL,
    session_id  uuid NOT NULL REFERENCES data_session,
    state       text NOT NULL CHECK (state IN ('granted', 'live', 'doomed', 'deleting')),
    sha256      bytea NOT NULL CHECK (length(sha256) = 32),
    bytes       bigint NOT NULL CHECK (bytes > 0),
    url_until   timestamptz NOT NULL,
    doomed_at   timestamptz,
    verified_at timestamptz,                                         -- when the store last showed that it has it
    lost_at     timestamptz,                                         -- the store does not have it
    PRIMARY KEY (domain_id, n)
);
CREATE INDEX data_pack_doomed ON data_pack (domain_id, n) WHERE state IN ('doomed', 'deleting');
CREATE INDEX data_pack_granted ON data_pack (domain_id, n) WHERE state = 'granted';
CREATE INDEX data_pack_verified ON data_pack (verified_at) WHERE state = 'live';

CREATE TABLE volume_snapshot (
    volume_id     uuid NOT NULL REFERENCES volume,
    seq           bigint NOT NULL,
    id            uuid NOT NULL,
    root_id       bytea NOT NULL CHECK (length(root_id) = 32),
    root_pack     bigint NOT NULL,
    root_offset   bigint NOT NULL,
    root_length   bigint NOT NULL,
    root_size     bigint NOT NULL,
    packs         bytea NOT NULL,                                    -- manifest.PackSet
    logical_bytes bigint NOT NULL,
    added_bytes   bigint NOT NULL,
    files         bigint NOT NULL,
    left_out      bigint NOT NULL DEFAULT 0,
    cut_at        timestamptz NOT NULL,
    committed_at  timestamptz NOT NULL,
    cause         text NOT NULL,
    consistency   text NOT NULL,
    label         text NOT NULL DEFAULT '',
    lease_id      uuid,
    epoch         integer NOT NULL DEFAULT 0,
    deleted_at    timestamptz,
    PRIMARY KEY (volume_id, seq)
);
CREATE UNIQUE INDEX volume_snapshot_id ON volume_snapshot (id);

-- How many bytes of a domain were stored from when on. Written with every change of them: GB-seconds are an exact sum.
CREATE TABLE data_level (
    domain_id   uuid NOT NULL REFERENCES data_domain,
    from_at     timestamptz NOT NULL,
    bytes       bigint NOT NULL CHECK (bytes >= 0),
    PRIMARY KEY (domain_id, from_at)
);

-- How far a domain is billed: byte microseconds times the price, of which posted is in the ledger.
CREATE TABLE data_meter (
    domain_id     uuid PRIMARY KEY REFERENCES data_domain,
    through_at    timestamptz NOT NULL,
    numerator     numeric(60,0) NOT NULL DEFAULT 0,                  -- sum of bytes * microseconds * nano-units per GB and hour
    posted        bigint NOT NULL DEFAULT 0,                         -- nano-units
    steps         bigint NOT NULL DEFAULT 0,                         -- postings, for their keys
    unpaid_since  timestamptz
);

-- +goose StatementBegin
-- The ledger learns the kind 'storage', whatever kinds it has by now.
DO $$
DECLARE have text;
BEGIN
    SET LOCAL lock_timeout = '3s';
    SELECT pg_get_constraintdef(oid) INTO have FROM pg_constraint WHERE conname = 'ledger_tx_kind' AND conrelid = 'ledger_tx'::regclass;
    have := regexp_replace(have, '\s*NOT VALID\s*$', '');
    have := regexp_replace(have, '^CHECK \((.*)\)$', '\1');
    ALTER TABLE ledger_tx DROP CONSTRAINT ledger_tx_kind;
    EXECUTE 'ALTER TABLE ledger_tx ADD CONSTRAINT ledger_tx_kind CHECK (' || have || ' OR kind = ''storage'') NOT VALID';
END $$;
-- +goose StatementEnd
