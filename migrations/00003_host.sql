-- +goose Up
CREATE TABLE fabric (
    id          uuid PRIMARY KEY,
    org_id      uuid NOT NULL REFERENCES org,   -- a fabric is scoped to its operator until measured
    name        text NOT NULL,
    busbw_gbps  double precision,               -- measured between hosts; NULL = not measured yet
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (org_id, name)
);

-- What changes rarely and is locked by renting. Heartbeats go to host_status and never touch this row.
CREATE TABLE host (
    id            uuid PRIMARY KEY,
    org_id        uuid NOT NULL REFERENCES org,
    name          text NOT NULL,
    region        text NOT NULL,
    fabric_id     uuid REFERENCES fabric,
    state         text NOT NULL CHECK (state IN ('enrolled', 'active', 'draining', 'retired')),
    simulated     boolean NOT NULL DEFAULT false,  -- GPUs of the fake NVML library; refused outside the sandbox
    multi_node    boolean NOT NULL DEFAULT true,   -- false behind NAT until a relay exists
    needs_full_report boolean NOT NULL DEFAULT false, -- claims were abandoned: sells nothing until a full report and wipe check
    blocked       text NOT NULL DEFAULT '',        -- the worst problem of the last inventory, in words: sells nothing
    revision      bigint NOT NULL DEFAULT 0,       -- rises with every change of the host's desired state
    -- inventory, as last reported
    boot_id       text NOT NULL DEFAULT '',
    cpu_cores     integer NOT NULL DEFAULT 0,
    ram_mb        bigint NOT NULL DEFAULT 0,
    disk_gb       bigint NOT NULL DEFAULT 0,
    driver        text NOT NULL DEFAULT '',
    cuda_max      text NOT NULL DEFAULT '',
    inventory_at  timestamptz,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    retired_at    timestamptz
);
CREATE UNIQUE INDEX host_name ON host (org_id, name) WHERE retired_at IS NULL;
CREATE INDEX host_org ON host (org_id, id);

-- agentapi.Inventory whole, for the host page: apart from the row that renting reads and locks.
CREATE TABLE host_inventory (
    host_id     uuid PRIMARY KEY REFERENCES host,
    inventory   jsonb NOT NULL
);

CREATE TABLE host_status (
    host_id         uuid PRIMARY KEY REFERENCES host,
    session         bigint NOT NULL DEFAULT 0,     -- rises with every accepted connection
    connected       boolean NOT NULL DEFAULT false,
    connected_at    timestamptz,
    disconnected_at timestamptz,
    -- the connection of this session: which NATS server holds it, under which number, and which run of the agent
    nats_server     text NOT NULL DEFAULT '',
    nats_client     bigint NOT NULL DEFAULT 0,
    instance        text NOT NULL DEFAULT '',
    last_sync_at    timestamptz,
    full_report_at  timestamptz,
    revision_seen   bigint NOT NULL DEFAULT 0,
    health_seq      bigint NOT NULL DEFAULT 0,     -- highest health event taken
    agent_version   text NOT NULL DEFAULT '',
    protocol        integer NOT NULL DEFAULT 0,
    address         text NOT NULL DEFAULT '',      -- as the server sees it
    net_up_mbps     double precision,
    net_down_mbps   double precision
);

CREATE TABLE host_key (
    host_id      uuid NOT NULL REFERENCES host,
    link_key     text NOT NULL,                  -- nkey public user key, U…
    attest_key   bytea NOT NULL,                 -- Ed25519 public key, 32 bytes
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_at   timestamptz,
    PRIMARY KEY (host_id, link_key)
);
CREATE UNIQUE INDEX host_key_link ON host_key (link_key);

CREATE TABLE enrollment_token (
    id           uuid PRIMARY KEY,
    org_id       uuid NOT NULL REFERENCES org,
    created_by   uuid NOT NULL REFERENCES app_user,
    name         text NOT NULL DEFAULT '',
    region       text NOT NULL,
    fabric       text NOT NULL DEFAULT '',
    token_hash   bytea NOT NULL UNIQUE,          -- sha256
    expires_at   timestamptz NOT NULL,
    used_at      timestamptz,
    host_id      uuid REFERENCES host,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE gpu (
    id            uuid PRIMARY KEY,
    host_id       uuid NOT NULL REFERENCES host,
    uuid          text NOT NULL,                 -- NVML UUID, GPU-…
    idx           integer NOT NULL,
    pci_bus       text NOT NULL DEFAULT '',
    model         text NOT NULL,
    arch          text NOT NULL DEFAULT '',
    vram_mb       bigint NOT NULL,
    compute_cap   text NOT NULL DEFAULT '',
    pcie_gen      integer NOT NULL DEFAULT 0,
    nvlink        boolean NOT NULL DEFAULT false,
    nvlink_gbps   double precision NOT NULL DEFAULT 0,
    facts         jsonb NOT NULL DEFAULT '{}',   -- agentapi.GPU whole
    health        text NOT NULL DEFAULT 'healthy' CHECK (health IN ('healthy', 'suspect', 'quarantined')),
    health_reason text NOT NULL DEFAULT '',
    present       boolean NOT NULL DEFAULT true, -- in the last inventory
    removed_at    timestamptz,                   -- set when its host retires
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX gpu_uuid_active ON gpu (uuid) WHERE removed_at IS NULL;
CREATE INDEX gpu_host ON gpu (host_id, idx);

CREATE TABLE gpu_health (
    gpu_id      uuid NOT NULL REFERENCES gpu,
    seq         bigint NOT NULL,                 -- the agent's event number
    kind        text NOT NULL,                   -- 'xid', 'lost', 'ecc', 'row_remap', 'recovered', …
    xid         integer NOT NULL DEFAULT 0,
    detail      text NOT NULL DEFAULT '',
    state       text NOT NULL,
    at          timestamptz NOT NULL,
    PRIMARY KEY (gpu_id, seq)
);

-- Exclusive use of a GPU: at most one claim without an end.
CREATE TABLE gpu_claim (
    id          uuid PRIMARY KEY,
    gpu_id      uuid NOT NULL REFERENCES gpu,
    host_id     uuid NOT NULL REFERENCES host,
    kind        text NOT NULL CHECK (kind IN ('quote', 'lease', 'own_use', 'maintenance')),
    ref         uuid NOT NULL,                   -- quote, lease, host
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz,                     -- quotes only
    ended_at    timestamptz,
    end_reason  text NOT NULL DEFAULT ''         -- 'rented', 'expired', 'released', 'abandoned', …
);
CREATE UNIQUE INDEX gpu_claim_active ON gpu_claim (gpu_id) WHERE ended_at IS NULL;
CREATE INDEX gpu_claim_host ON gpu_claim (host_id) WHERE ended_at IS NULL;
CREATE INDEX gpu_claim_ref ON gpu_claim (ref) WHERE ended_at IS NULL;
CREATE INDEX gpu_claim_expiry ON gpu_claim (expires_at) WHERE ended_at IS NULL AND expires_at IS NOT NULL;

-- One row per GPU per five minutes: arrays of samples. Partitioned by day; the worker makes and drops partitions.
CREATE TABLE telemetry (
    gpu_id      uuid NOT NULL,
    bucket      timestamptz NOT NULL,            -- start of the five minutes
    at_ms       bigint[] NOT NULL,               -- unix milliseconds of each sample
    util        smallint[] NOT NULL,             -- percent, -1 = not known
    mem_mb      integer[] NOT NULL,
    power_w     integer[] NOT NULL,
    temp_c      smallint[] NOT NULL,
    PRIMARY KEY (gpu_id, bucket)
) PARTITION BY RANGE (bucket);
CREATE TABLE telemetry_default PARTITION OF telemetry DEFAULT;
