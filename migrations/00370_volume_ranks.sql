-- +goose Up
-- Mode 'ranks': every rank of a cluster writes a copy of a volume, and what all have prepared is committed as one snapshot.
SET LOCAL lock_timeout = '3s';
ALTER TABLE volume_mount DROP CONSTRAINT volume_mount_mode_check;
ALTER TABLE volume_mount ADD CONSTRAINT volume_mount_mode_check CHECK (mode IN ('rw', 'ro', 'ranks')) NOT VALID;
ALTER TABLE data_session DROP CONSTRAINT data_session_mode_check;
ALTER TABLE data_session ADD CONSTRAINT data_session_mode_check CHECK (mode IN ('rw', 'ro', 'ranks')) NOT VALID;

-- Of one moment of all ranks, or of a volume with one writer. Others are never restored by themselves where one with a label exists.
ALTER TABLE volume_snapshot ADD COLUMN whole boolean NOT NULL DEFAULT true;

-- Of a cluster whose ranks write: the start (epoch) that they belong to, the snapshot that all of them began with, and the
-- packs that merges have added since.
ALTER TABLE volume_writer ADD COLUMN start_epoch integer NOT NULL DEFAULT 0;
ALTER TABLE volume_writer ADD COLUMN start_seq bigint NOT NULL DEFAULT 0;
ALTER TABLE volume_writer ADD COLUMN merge_packs bytea NOT NULL DEFAULT '';

-- The copy of one rank. It lives as long as the start of its cluster.
CREATE TABLE volume_shard (
    volume_id    uuid NOT NULL REFERENCES volume,
    rank         integer NOT NULL,
    session_id   uuid NOT NULL REFERENCES data_session,  -- the run that writes it: all others are fenced
    base         jsonb,                                  -- agentapi.PackPlace: root of what it committed last, or has restored; NULL: empty
    ended        boolean NOT NULL DEFAULT false,         -- its last commit was that of its end
    -- What it has prepared and nobody has committed yet. problem is why it cannot be committed.
    prepared_id  uuid,
    round        text NOT NULL DEFAULT '',               -- which shards are committed together; '': this one alone
    prepared     jsonb,                                  -- agentapi.CommitVolume
    prepared_at  timestamptz,
    problem      text NOT NULL DEFAULT '',
    -- Its last commit, for a repetition.
    done_id      uuid,
    done_as      uuid,
    done_seq     bigint NOT NULL DEFAULT 0,
    done_at      timestamptz,
    PRIMARY KEY (volume_id, rank)
);
CREATE UNIQUE INDEX volume_shard_session ON volume_shard (session_id);
