-- +goose Up
-- Public images that lie on hosts: a hint for placement, never a promise. What was pulled with credentials is not told.
CREATE TABLE host_image (
    host_id  uuid NOT NULL REFERENCES host,
    ref      text NOT NULL,                      -- with registry and tag: index.docker.io/library/busybox:1
    digest   text NOT NULL,                      -- what the name meant there
    PRIMARY KEY (host_id, ref)
);
CREATE INDEX host_image_ref ON host_image (ref);
