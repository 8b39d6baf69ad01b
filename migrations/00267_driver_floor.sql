-- +goose Up
-- NVIDIA's bulletin of 2026-05-26 on the display driver (answer 5821). Only warnings: the numbers of the mended versions come from a
-- distribution's tracker (Flatcar, issue 2155), which names three branches. Other branches have no row and are not judged.
INSERT INTO version_floor (component, branch, least, reason, noticed_on, blocks_from) VALUES
    ('driver', '535.', '535.309.01', 'a program can read memory of the kernel or stop the host (CVE-2026-24196 and others of May 2026)', '2026-05-26', NULL),
    ('driver', '580.', '580.159.03', 'a program can read memory of the kernel or stop the host (CVE-2026-24196 and others of May 2026)', '2026-05-26', NULL),
    ('driver', '595.', '595.71.05', 'a program can read memory of the kernel or stop the host (CVE-2026-24196 and others of May 2026)', '2026-05-26', NULL)
ON CONFLICT (component, branch) DO NOTHING;
