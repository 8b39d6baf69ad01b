-- +goose Up
-- Which host is the heir of which: the same machine, enrolled again. What counts against host_id counts against heir_id, too, if it
-- happened before before_at. same_org: both belong to one organisation; otherwise the machine was perhaps sold. A host reports all of
-- this itself except its organisation and when it was enrolled, so no single fact is enough:
--   - it lists a GPU now that the other one does not have any more,
--   - its boot id is that of a retired host of its organisation,
--   - it is of the same organisation and listed a GPU of the same model for the first time after the other one failed, and GPUs of that
--     model are gone from the other one: a hostile agent can give its GPUs other UUIDs and its machine another boot id.
CREATE VIEW host_heir AS
SELECT h.id AS host_id, h.id AS heir_id, true AS same_org, 'infinity'::timestamptz AS before_at FROM host h
UNION ALL
SELECT o.host_id, n.host_id, nh.org_id = oh.org_id, 'infinity'
FROM gpu o JOIN gpu n ON n.uuid = o.uuid AND n.host_id <> o.host_id AND n.removed_at IS NULL
JOIN host oh ON oh.id = o.host_id JOIN host nh ON nh.id = n.host_id
WHERE NOT o.present OR o.removed_at IS NOT NULL
UNION ALL
SELECT oh.id, nh.id, true, 'infinity'
FROM host oh JOIN host nh ON nh.org_id = oh.org_id AND nh.boot_id = oh.boot_id AND nh.id <> oh.id
WHERE oh.boot_id <> '' AND oh.state = 'retired' AND nh.state <> 'retired'
UNION ALL
SELECT o.host_id, n.host_id, true, n.created_at
FROM gpu o JOIN host oh ON oh.id = o.host_id
JOIN gpu n ON n.model = o.model AND n.host_id <> o.host_id AND n.removed_at IS NULL
JOIN host nh ON nh.id = n.host_id AND nh.org_id = oh.org_id AND nh.state <> 'retired'
WHERE NOT o.present OR o.removed_at IS NOT NULL;
