-- +goose Up
-- Members of an org have one of six roles. Everybody who is a member before this migration has all rights, so they are owners.
-- A replica of the previous version gives every member all rights: invite people after the last one has stopped.
ALTER TABLE membership DROP CONSTRAINT membership_role_check,
    ADD CONSTRAINT membership_role_check CHECK (role IN ('owner', 'admin', 'member', 'operator', 'billing', 'viewer'));
UPDATE membership SET role = 'owner' WHERE role <> 'owner';

CREATE TABLE org_invitation (
    id          uuid PRIMARY KEY,
    org_id      uuid NOT NULL REFERENCES org,
    email       text NOT NULL,                  -- lower case, erasable
    role        text NOT NULL CHECK (role IN ('owner', 'admin', 'member', 'operator', 'billing', 'viewer')),
    secret_hash bytea NOT NULL,                 -- sha256 of the mailed link's secret
    created_by  uuid NOT NULL REFERENCES app_user,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL,
    outcome     text CHECK (outcome IN ('accepted', 'declined', 'withdrawn')),
    ended_at    timestamptz,
    CHECK ((outcome IS NULL) = (ended_at IS NULL))
);
CREATE UNIQUE INDEX org_invitation_secret ON org_invitation (secret_hash);
CREATE UNIQUE INDEX org_invitation_open ON org_invitation (org_id, email) WHERE ended_at IS NULL;
CREATE INDEX org_invitation_email ON org_invitation (email) WHERE ended_at IS NULL;
