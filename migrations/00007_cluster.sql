-- +goose Up
CREATE TABLE cluster (
    id              uuid PRIMARY KEY,
    org_id          uuid NOT NULL REFERENCES org,
    created_by      uuid NOT NULL,
    name            text NOT NULL,
    project         text NOT NULL DEFAULT '',
    labels          jsonb NOT NULL DEFAULT '{}',
    spec            jsonb NOT NULL,              -- market.Spec, secrets taken out
    secrets         bytea,                       -- env and registry credentials, encrypted at rest
    image_ref       text NOT NULL,
    image_digest    text NOT NULL DEFAULT '',
    state           text NOT NULL CHECK (state IN ('provisioning', 'running', 'degraded', 'releasing', 'released', 'failed')),
    reason          text NOT NULL DEFAULT '',
    detail          text NOT NULL DEFAULT '',
    node_count      integer NOT NULL,
    gpus_per_node   integer NOT NULL,
    rate            bigint NOT NULL,             -- micro-units per hour, all-in
    currency        text NOT NULL,
    budget          bigint,                      -- nano-units; NULL = none
    max_duration_s  bigint,
    epoch           integer NOT NULL DEFAULT 1,  -- the start that is under way or running
    go_at           timestamptz,                 -- barrier released for this epoch
    start_deadline  timestamptz,                 -- of the start under way
    quick_failures  integer NOT NULL DEFAULT 0,  -- starts in a row whose command failed soon
    money_reason    text NOT NULL DEFAULT '',    -- which limit stops the next extension of run_until
    stop_at         timestamptz,                 -- the moment of PostgreSQL's clock at which the present run ended
    quote_id        uuid,
    network         jsonb NOT NULL DEFAULT '{}', -- cidr, scope, busbw_gbps, latency and bandwidth matrix
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    running_at      timestamptz,
    ended_at        timestamptz,
    run_until       timestamptz,                 -- authorised through here
    due_at          timestamptz,                 -- when the watchdog must look next
    settled_at      timestamptz                  -- all leases settled, hold returned
);
CREATE INDEX cluster_org ON cluster (org_id, id);
CREATE INDEX cluster_due ON cluster (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE node (
    id            uuid PRIMARY KEY,
    cluster_id    uuid NOT NULL REFERENCES cluster,
    rank          integer NOT NULL,
    host_id       uuid NOT NULL REFERENCES host,
    lease_id      uuid NOT NULL,                 -- the current lease
    epoch         integer NOT NULL,
    state         text NOT NULL CHECK (state IN ('pending', 'pulling', 'starting', 'joining', 'ready', 'lost', 'stopping', 'stopped', 'failed')),
    reason        text NOT NULL DEFAULT '',
    detail        text NOT NULL DEFAULT '',
    address       text NOT NULL,                 -- on the overlay
    wg_key        text NOT NULL DEFAULT '',      -- made on the host
    endpoints     text[] NOT NULL DEFAULT '{}',  -- where its overlay listens, best first
    started_at    timestamptz,                   -- workload released and running, this epoch
    exit_code     integer,
    exit_at       timestamptz,                   -- when the exit was first reported
    preflight     jsonb NOT NULL DEFAULT '{}',
    since         timestamptz NOT NULL DEFAULT clock_timestamp(), -- in this state
    UNIQUE (cluster_id, rank)
);
CREATE INDEX node_lease ON node (lease_id);
CREATE INDEX node_host ON node (host_id);

-- What a host said last of a node: written by every sync, so apart from the rows that are locked.
CREATE TABLE node_status (
    node_id       uuid PRIMARY KEY REFERENCES node,
    epoch         integer NOT NULL,
    last_good_ms  bigint NOT NULL DEFAULT 0,     -- server's clock at the last report that found the node well
    good          boolean NOT NULL DEFAULT false,  -- the last report found nothing wrong with it
    peers_down    integer[] NOT NULL DEFAULT '{}', -- ranks whose overlay it hears nothing from
    progress      jsonb NOT NULL DEFAULT '{}',
    boot_id       text NOT NULL DEFAULT '',      -- with boot_ms: the report this comes from, so that a late one
    boot_ms       bigint NOT NULL DEFAULT 0,     -- changes nothing
    logs_kept     integer[] NOT NULL DEFAULT '{}', -- epochs whose log waits on the host to be stored
    reported_at   timestamptz NOT NULL           -- the report's moment on PostgreSQL's clock
);
CREATE INDEX node_status_logs ON node_status (node_id) WHERE logs_kept <> '{}';

CREATE TABLE cluster_event (
    cluster_id  uuid NOT NULL REFERENCES cluster,
    n           bigint GENERATED ALWAYS AS IDENTITY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind        text NOT NULL,                   -- 'created', 'node_state', 'preflight', 'running', …
    rank        integer,                         -- NULL = the cluster as a whole
    title       text NOT NULL,
    detail      text NOT NULL DEFAULT '',
    data        jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (cluster_id, n)
);

-- The end of a node's log, kept after its host wiped it. Bounded.
CREATE TABLE node_log (
    node_id     uuid NOT NULL REFERENCES node,
    epoch       integer NOT NULL,
    content     bytea NOT NULL,
    truncated   boolean NOT NULL DEFAULT false,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (node_id, epoch)
);

CREATE TABLE replica (
    id           uuid PRIMARY KEY,
    name         text NOT NULL,
    stream_url   text NOT NULL DEFAULT '',       -- where agents dial back to this very replica
    nats_route   text NOT NULL DEFAULT '',
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
