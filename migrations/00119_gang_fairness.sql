-- +goose Up
-- The facts from which it is decided whose time counts while a rank of a gang is bad. Times are unix ms of PostgreSQL's
-- clock. Facts are only ever added; suspension is derived from them and may be computed again.

-- When the control plane last heard its own message to itself, for each listener (NATS server that hosts connect to). The
-- message takes the way of a host's report: NATS, queue, database.
CREATE TABLE pulse (
    listener       text PRIMARY KEY,
    first_ms       bigint NOT NULL,
    last_ms        bigint NOT NULL,
    control_epoch  bigint NOT NULL,
    CHECK (last_ms >= first_ms)
);

-- Time in which the control plane could not hear the hosts of a listener, with the time they are given to come back.
CREATE TABLE deaf_gap (
    listener     text NOT NULL,
    from_ms      bigint NOT NULL,
    to_ms        bigint NOT NULL,
    cause        text NOT NULL CHECK (cause IN ('pulse', 'slow', 'mass_silence', 'restore')),
    recorded_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (listener, from_ms, to_ms),
    CHECK (to_ms > from_ms)
);
CREATE INDEX deaf_gap_to ON deaf_gap (to_ms);

-- Time of a running rank for which no report of its host says that it was well. unwell: its host reported that it was not,
-- so a signed segment that does not say "up" does not count for it.
CREATE TABLE rank_gap (
    lease_id     uuid NOT NULL,
    epoch        integer NOT NULL,
    from_ms      bigint NOT NULL,
    to_ms        bigint NOT NULL,
    unwell       boolean NOT NULL DEFAULT false,
    recorded_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (lease_id, epoch, from_ms, to_ms, unwell),
    CHECK (to_ms > from_ms)
);

-- Time in which a rank's host signed that it heard nothing from another rank over the cluster's network.
CREATE TABLE deaf_span (
    lease_id     uuid NOT NULL,
    epoch        integer NOT NULL,
    peer         integer NOT NULL,               -- the rank that was not heard
    from_ms      bigint NOT NULL,
    to_ms        bigint NOT NULL,
    received_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (lease_id, epoch, peer, from_ms, to_ms),
    CHECK (to_ms > from_ms)
);

-- Time in which a host's reports were missing, or came late, while the control plane could hear.
CREATE TABLE silence (
    host_id      uuid NOT NULL REFERENCES host,
    from_ms      bigint NOT NULL,
    to_ms        bigint NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('missing', 'late')),
    recorded_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (host_id, from_ms, to_ms, kind),
    CHECK (to_ms > from_ms)
);

-- Time for which the control plane suspended a cluster because two ranks claimed not to hear each other and nothing
-- decides between them. It begins when it is written, never before.
CREATE TABLE undecided_span (
    cluster_id   uuid NOT NULL REFERENCES cluster,
    epoch        integer NOT NULL,
    low          integer NOT NULL,               -- the two ranks
    high         integer NOT NULL,
    from_ms      bigint NOT NULL,
    to_ms        bigint,                         -- NULL: it goes on
    PRIMARY KEY (cluster_id, epoch, low, high, from_ms),
    CHECK (low < high),
    CHECK (to_ms IS NULL OR to_ms >= from_ms)
);
CREATE INDEX undecided_span_open ON undecided_span (cluster_id) WHERE to_ms IS NULL; -- those that go on

-- Time of a run that is billed to nobody because a rank was not proven up. A row is written once its span is decided: no
-- proof that could still arrive would change it. culprits are leases, empty for the classes platform and undecided.
CREATE TABLE suspension (
    cluster_id  uuid NOT NULL REFERENCES cluster,
    n           integer NOT NULL,
    from_ms     bigint NOT NULL,
    to_ms       bigint NOT NULL,
    class       text NOT NULL CHECK (class IN ('platform', 'proof', 'silence', 'undecided')),
    culprits    uuid[] NOT NULL DEFAULT '{}',
    decided_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (cluster_id, n),
    CHECK (to_ms > from_ms)
);

-- What counts against a host in gangs: doubts, failed starts, losses and undecided ends.
CREATE TABLE gang_strike (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host_id      uuid NOT NULL REFERENCES host,
    cluster_id   uuid NOT NULL,
    against_org  uuid,                           -- operator of the other end, for an undecided end
    kind         text NOT NULL CHECK (kind IN ('doubt', 'start', 'loss', 'undecided')),
    at           timestamptz NOT NULL
);
CREATE INDEX gang_strike_host ON gang_strike (host_id, at);

-- Pairs that are not put together for a while after an undecided end: a renter's organisation and a host, or two
-- operators' organisations (the lower id first).
CREATE TABLE pair_ban (
    a      uuid NOT NULL,
    b      uuid NOT NULL,
    until  timestamptz NOT NULL,
    PRIMARY KEY (a, b)
);
CREATE INDEX pair_ban_until ON pair_ban (until);

-- doubt_from_ms: the window is open, but a rank is in doubt since then and nothing later is confirmed. limit_ms: not the
-- window that runs now, but past time up to there of which it is not decided yet whether it counts.
ALTER TABLE cluster_window
    ADD COLUMN doubt_from_ms bigint,
    ADD COLUMN limit_ms bigint;

-- Since when a rank's host has reported that it is not well, unix ms; NULL: its last report found it well.
ALTER TABLE node_status ADD COLUMN unwell_since_ms bigint;
