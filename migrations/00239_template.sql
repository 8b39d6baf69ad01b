-- +goose Up
-- Templates of organisations: specs with a name. They hold no secret: values of the environment are masked.
CREATE TABLE template (
    org_id      uuid NOT NULL REFERENCES org,
    name        text NOT NULL,
    title       text NOT NULL,
    description text NOT NULL,
    spec        jsonb NOT NULL,
    created_by  uuid NOT NULL REFERENCES app_user,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, name)
);
CREATE INDEX template_created_by ON template (created_by);
