-- +goose Up
-- The use of given GPUs by one node: the unit of metering. Price, share and terms are frozen here.
CREATE TABLE lease (
    id             uuid PRIMARY KEY,
    cluster_id     uuid NOT NULL,
    node_id        uuid NOT NULL,
    rank           integer NOT NULL,
    host_id        uuid NOT NULL REFERENCES host,
    renter_org_id  uuid NOT NULL REFERENCES org,
    host_org_id    uuid NOT NULL REFERENCES org,
    gpu_count      integer NOT NULL CHECK (gpu_count > 0),
    gpu_model      text NOT NULL,
    gpu_ids        uuid[] NOT NULL,
    cpu_cores      double precision NOT NULL,    -- what the node may use of its host
    ram_mb         bigint NOT NULL,
    disk_gb        bigint NOT NULL,
    currency       text NOT NULL,
    host_share_ppm integer NOT NULL,
    epoch          integer NOT NULL,             -- rises on every start, restart or replacement
    required       boolean NOT NULL DEFAULT true,-- on_node_failure 'ignore' takes a lost rank out
    run_until      timestamptz,                  -- the agent stops there unless it is extended; backed by held money
    covered_from_ms bigint NOT NULL DEFAULT 0,   -- while no window is open: held money covers from here to run_until
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at       timestamptz,                  -- no longer desired
    gone_at        timestamptz,                  -- the host's report no longer shows it
    settled_at     timestamptz                   -- nothing more will be posted
);
CREATE INDEX lease_cluster ON lease (cluster_id, rank);
CREATE INDEX lease_host ON lease (host_id) WHERE gone_at IS NULL;
CREATE INDEX lease_host_all ON lease (host_id, created_at);
CREATE INDEX lease_unsettled ON lease (ended_at) WHERE settled_at IS NULL;
CREATE INDEX lease_renter_unsettled ON lease (renter_org_id) WHERE settled_at IS NULL;

CREATE TABLE lease_price (
    lease_id    uuid NOT NULL REFERENCES lease,
    from_ms     bigint NOT NULL,                 -- unix ms from which it holds; the first is 0
    rate        bigint NOT NULL CHECK (rate >= 0), -- micro-units per hour, the whole lease
    items       jsonb NOT NULL,                  -- what the rate is made of, as quoted
    PRIMARY KEY (lease_id, from_ms)
);

-- Intervals in which all required ranks of a cluster were up: only then seconds count. PostgreSQL's clock.
CREATE TABLE cluster_window (
    cluster_id          uuid NOT NULL,
    n                   integer NOT NULL,
    opened_ms           bigint NOT NULL,
    confirmed_until_ms  bigint NOT NULL,         -- earliest last-good report of the required ranks; nothing is posted past it
    closed_ms           bigint,
    PRIMARY KEY (cluster_id, n),
    CHECK (confirmed_until_ms >= opened_ms),
    CHECK (closed_ms IS NULL OR closed_ms >= opened_ms)
);

CREATE TABLE lease_meter (
    lease_id            uuid PRIMARY KEY REFERENCES lease,
    settled_through_ms  bigint NOT NULL DEFAULT 0,   -- below it nothing changes any more
    proven_ms           bigint[] NOT NULL DEFAULT '{}', -- start, end, start, end, …: proven time above the watermark
    billed_ms           bigint NOT NULL DEFAULT 0,   -- billed time below the watermark
    numerator           numeric(60,0) NOT NULL DEFAULT 0, -- Σ rate × ms below the watermark, micro-units·ms per hour
    posted              bigint NOT NULL DEFAULT 0,   -- nano-units, cumulative
    posted_billed_ms    bigint NOT NULL DEFAULT 0,   -- time behind `posted`
    host_posted         bigint NOT NULL DEFAULT 0,   -- the host's part of posted
    energy_mj           bigint NOT NULL DEFAULT 0,
    frozen              boolean NOT NULL DEFAULT false -- conflicting segments: an admin must look
);

CREATE TABLE time_anchor (
    host_id     uuid NOT NULL REFERENCES host,
    boot_id     text NOT NULL,
    number      bigint NOT NULL,
    boot_ms     bigint NOT NULL,                 -- the host's CLOCK_BOOTTIME
    server_ms   bigint NOT NULL,                 -- PostgreSQL's clock at that moment, unix ms
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (host_id, boot_id, number)
);

-- The agent's signed attestations. Immutable.
CREATE TABLE usage_segment (
    lease_id      uuid NOT NULL,
    epoch         integer NOT NULL,
    boot_id       text NOT NULL,
    seq           bigint NOT NULL,
    anchor        bigint NOT NULL,
    boot_end_ms   bigint NOT NULL,
    start_ms      bigint NOT NULL,
    end_ms        bigint NOT NULL,
    energy_mj     bigint NOT NULL,
    final         boolean NOT NULL,              -- the last one of this lease and epoch
    payload_hash  bytea NOT NULL,
    signature     bytea NOT NULL,
    received_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (lease_id, epoch, boot_id, seq),
    CHECK (end_ms > start_ms OR final)
);
CREATE TRIGGER usage_segment_immutable BEFORE UPDATE OR DELETE ON usage_segment FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TABLE segment_quarantine (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id      uuid NOT NULL,
    lease_id     uuid,
    reason       text NOT NULL,                  -- 'bad_signature', 'foreign_lease', 'conflict', 'too_late', 'future', …
    payload      bytea NOT NULL,                 -- the segment as JSON
    payload_hash bytea NOT NULL,                 -- of that; a repetition is not kept again
    received_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (host_id, payload_hash)
);
CREATE INDEX segment_quarantine_lease ON segment_quarantine (lease_id);
