-- +goose Up
-- on_node_failure: replace. A rank whose host is lost for good waits here for another one.
ALTER TABLE cluster
    ADD COLUMN replace_until timestamptz,            -- a lost rank waits for another host until then; NULL = none does
    ADD COLUMN replace_note text NOT NULL DEFAULT ''; -- why none was found yet, for people

-- A lease whose host was lost and whose rank went on elsewhere. One row per lease: it is lost once.
CREATE TABLE node_replacement (
    lost_lease  uuid PRIMARY KEY,
    cluster_id  uuid NOT NULL REFERENCES cluster,
    node_id     uuid NOT NULL REFERENCES node,
    lost_host   uuid NOT NULL REFERENCES host,
    lease_id    uuid NOT NULL,                       -- what took its place
    host_id     uuid NOT NULL REFERENCES host,
    logs_kept   integer[] NOT NULL DEFAULT '{}',     -- epochs whose log waits on the lost host, should it come back
    at          timestamptz NOT NULL
);
CREATE INDEX node_replacement_cluster ON node_replacement (cluster_id);
CREATE INDEX node_replacement_host ON node_replacement (lost_host);

-- Whatever else happens, a rank has one live lease.
CREATE UNIQUE INDEX lease_one_live ON lease (cluster_id, rank) WHERE ended_at IS NULL;
