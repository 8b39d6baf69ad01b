-- +goose Up
-- The oldest versions of a host's programs that may run renters' work, and since when an older one keeps the host from being rented. Staff
-- add rows as bulletins appear; a host is judged by them when it next sends its inventory.
CREATE TABLE version_floor (
    component text NOT NULL CONSTRAINT version_floor_component_check CHECK (component IN ('docker', 'runc', 'toolkit', 'driver')),
    branch text NOT NULL DEFAULT '',    -- of versions that begin with it, such as '1.3.'; '' is of all that no other row is of
    least text NOT NULL CONSTRAINT version_floor_least_check CHECK (least ~ '^[0-9]+(\.[0-9]+){1,2}$'),
    reason text NOT NULL CONSTRAINT version_floor_reason_check CHECK (reason <> ''),
    noticed_on date NOT NULL,           -- when the reason became known
    blocks_from timestamptz,            -- older versions are a warning before; NULL: always only a warning
    PRIMARY KEY (component, branch)
);

INSERT INTO version_floor (component, branch, least, reason, noticed_on, blocks_from) VALUES
    ('toolkit', '', '1.17.8', 'a container can take over the host (CVE-2025-23266)', '2025-07-15', '2025-07-15T00:00:00Z'),
    -- Only warnings: distributions mend their older versions without changing the number.
    ('runc', '', '1.2.8', 'a container can write to the host (CVE-2025-31133, CVE-2025-52565, CVE-2025-52881)', '2025-11-05', NULL),
    ('runc', '1.3.', '1.3.3', 'a container can write to the host (CVE-2025-31133, CVE-2025-52565, CVE-2025-52881)', '2025-11-05', NULL),
    ('docker', '', '20.10.0', 'older versions of Docker have not been tested', '2026-11-23', NULL);
