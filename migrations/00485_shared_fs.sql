-- +goose Up
-- Shared file systems: NFS, CephFS and others that an operator has mounted on several hosts. Renting organisations have
-- a folder each there.
SET LOCAL lock_timeout = '3s';
CREATE TABLE shared_fs (
    id          uuid PRIMARY KEY,
    org_id      uuid NOT NULL REFERENCES org,               -- the operator
    name        text NOT NULL UNIQUE,                       -- by which renters name it
    kind        text NOT NULL CHECK (kind IN ('nfs', 'cephfs', 'gluster', 'lustre', 'beegfs', 'weka', 'other')),
    quota_gb    bigint NOT NULL CHECK (quota_gb > 0),       -- of each organisation, in GB of 10⁹ bytes
    marker      text NOT NULL DEFAULT '',                   -- what hosts found in its marker file; empty: none reported yet
    created_by  uuid NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX shared_fs_org ON shared_fs (org_id);

-- What hosts report. A host is used for a file system of its operator that has the same name and marker.
CREATE TABLE shared_host (
    host_id      uuid NOT NULL REFERENCES host,
    name         text NOT NULL,
    marker       text NOT NULL,
    fs_type      text NOT NULL,
    size_gb      bigint NOT NULL,
    problem      text NOT NULL,
    PRIMARY KEY (host_id, name)
);
CREATE INDEX shared_host_name ON shared_host (name);

-- The folder of an organisation. Its files are on the operator's file system only.
CREATE TABLE shared_folder (
    id           uuid PRIMARY KEY,
    shared_id    uuid NOT NULL REFERENCES shared_fs ON DELETE CASCADE,
    org_id       uuid NOT NULL REFERENCES org,
    state        text NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'deleting', 'erased')),
    used_bytes   bigint NOT NULL DEFAULT 0,
    closed       boolean NOT NULL DEFAULT false,            -- over its quota: the last host that measured it has closed it
    problem      text NOT NULL DEFAULT '',                  -- why it could not be measured, closed or erased
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    used_at      timestamptz NOT NULL DEFAULT clock_timestamp(),  -- when a cluster was last rented with it
    warned_at    timestamptz,                               -- that it will be deleted; after used_at
    deleting_at  timestamptz,
    erased_at    timestamptz
);
CREATE UNIQUE INDEX shared_folder_live ON shared_folder (shared_id, org_id) WHERE state = 'live';
CREATE INDEX shared_folder_org ON shared_folder (org_id);
CREATE INDEX shared_folder_deleting ON shared_folder (shared_id) WHERE state = 'deleting';

CREATE TABLE shared_mount (
    cluster_id  uuid NOT NULL REFERENCES cluster,
    folder_id   uuid NOT NULL REFERENCES shared_folder ON DELETE CASCADE,
    mode        text NOT NULL CHECK (mode IN ('rw', 'ro')),
    PRIMARY KEY (cluster_id, folder_id)
);
CREATE INDEX shared_mount_folder ON shared_mount (folder_id);

-- What renting sees of them changes the view of the fleet; see fleet_change.
CREATE TRIGGER shared_host_inserted AFTER INSERT ON shared_host FOR EACH ROW EXECUTE FUNCTION note_host_of_row();
CREATE TRIGGER shared_host_updated AFTER UPDATE ON shared_host FOR EACH ROW EXECUTE FUNCTION note_host_of_row();
-- +goose StatementBegin
CREATE FUNCTION note_host_of_old_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fleet_change (host_id) VALUES (OLD.host_id);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER shared_host_deleted AFTER DELETE ON shared_host FOR EACH ROW EXECUTE FUNCTION note_host_of_old_row();
-- +goose StatementBegin
CREATE FUNCTION note_hosts_of_shared() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fleet_change (host_id)
    SELECT x.host_id FROM shared_host x WHERE x.name = CASE WHEN TG_OP = 'DELETE' THEN OLD.name ELSE NEW.name END;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER shared_fs_noted AFTER INSERT OR UPDATE OR DELETE ON shared_fs FOR EACH ROW EXECUTE FUNCTION note_hosts_of_shared();
