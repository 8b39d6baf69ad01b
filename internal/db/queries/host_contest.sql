-- GPUs that hosts of several organisations list.

-- name: HoldersOfUUIDs :many
-- The GPUs that hold UUIDs on other hosts than those that list them, at most one of each UUID that a host lists, whether both hosts belong
-- to one organisation, and how long the holder's host has not reported: 0 while a server runs that started less than an hour ago, because
-- hosts may not have found it yet.
SELECT me.id AS listed_by, g.uuid, g.id, g.host_id, h.org_id, h.name AS host_name, (h.org_id = me.org_id)::boolean AS same_org, me.org_id AS my_org, g.present,
       (CASE WHEN EXISTS (SELECT FROM replica r WHERE r.seen_at > clock_timestamp() - interval '1 minute'
                                                  AND r.started_at > clock_timestamp() - interval '1 hour') THEN 0
             ELSE extract(epoch FROM clock_timestamp() - coalesce(s.last_sync_at, h.created_at)) END)::bigint AS silent_s,
       EXISTS (SELECT FROM gpu_claim c WHERE c.gpu_id = g.id AND c.ended_at IS NULL
                                         AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp()))::boolean AS claimed,
       EXISTS (SELECT FROM gpu_award a WHERE a.uuid = g.uuid AND a.org_id = h.org_id)::boolean AS awarded,
       EXISTS (SELECT FROM gpu o JOIN host oh ON oh.id = o.host_id
               JOIN lease l ON l.host_id = o.host_id AND o.id = ANY (l.gpu_ids)
               JOIN lease_meter m ON m.lease_id = l.id
               WHERE o.uuid = g.uuid AND oh.org_id = h.org_id AND l.renter_org_id <> l.host_org_id AND m.billed_ms > 0)::boolean AS proven
FROM (SELECT unnest(@hosts::uuid[]) AS host_id, unnest(@uuids::text[]) AS uuid) u
JOIN gpu g ON g.uuid = u.uuid JOIN host h ON h.id = g.host_id JOIN host_status s ON s.host_id = h.id JOIN host me ON me.id = u.host_id
WHERE g.removed_at IS NULL AND g.contest <> 'challenger' AND g.host_id <> u.host_id;

-- name: RemoveGPU :execrows
-- Removes a GPU from its host unless it is claimed. It changes no row while another transaction holds the host's lock: the caller
-- holds the lock of another host, so it must not wait.
WITH free AS (SELECT h.id FROM host h WHERE h.id = @host_id FOR UPDATE SKIP LOCKED)
UPDATE gpu g SET present = false, removed_at = clock_timestamp(), contest = ''
FROM free
WHERE g.id = @id AND g.host_id = free.id AND g.removed_at IS NULL
  AND NOT EXISTS (SELECT FROM gpu_claim c WHERE c.gpu_id = g.id AND c.ended_at IS NULL
                                            AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp()));

-- name: ChallengedUUIDs :many
-- Those of the UUIDs that hosts list that a host of another organisation lists, too.
SELECT DISTINCT me.id AS host_id, g.uuid
FROM (SELECT unnest(@hosts::uuid[]) AS host_id, unnest(@uuids::text[]) AS uuid) u
JOIN gpu g ON g.uuid = u.uuid JOIN host h ON h.id = g.host_id JOIN host me ON me.id = u.host_id
WHERE g.removed_at IS NULL AND h.org_id <> me.org_id
ORDER BY g.uuid, me.id;

-- name: DefendGPU :one
-- Makes the GPU that holds its UUID the incumbent, if staff gave it to its organisation, or another organisation rented it there and was billed
-- for it; else the holder.
UPDATE gpu g
SET contest = CASE WHEN EXISTS (SELECT FROM gpu_award a JOIN host h ON h.id = g.host_id WHERE a.uuid = g.uuid AND a.org_id = h.org_id)
                     OR EXISTS (SELECT FROM gpu o JOIN host oh ON oh.id = o.host_id JOIN host h ON h.id = g.host_id
                                JOIN lease l ON l.host_id = o.host_id AND o.id = ANY (l.gpu_ids)
                                JOIN lease_meter m ON m.lease_id = l.id
                                WHERE o.uuid = g.uuid AND oh.org_id = h.org_id AND l.renter_org_id <> l.host_org_id AND m.billed_ms > 0)
                   THEN 'incumbent' ELSE 'holder' END
WHERE g.id = @id
RETURNING g.contest;

-- name: EndContests :exec
-- GPUs of which no challenger is left are theirs who hold them.
UPDATE gpu g SET contest = ''
WHERE g.contest IN ('holder', 'incumbent') AND g.removed_at IS NULL
  AND g.uuid IN (SELECT r.uuid FROM gpu r WHERE r.host_id = @host_id)
  AND NOT EXISTS (SELECT FROM gpu c WHERE c.uuid = g.uuid AND c.removed_at IS NULL AND c.contest = 'challenger');

-- name: ContestedGPUs :many
-- scan: page
SELECT g.uuid, g.contest, g.model, g.host_id, h.name AS host_name, h.state AS host_state, h.org_id, o.name AS org_name, g.created_at,
       (SELECT count(*) FROM lease l JOIN lease_meter m ON m.lease_id = l.id
        WHERE l.host_id = g.host_id AND g.id = ANY (l.gpu_ids) AND l.renter_org_id <> l.host_org_id AND m.billed_ms > 0)::integer AS leases,
       (SELECT coalesce(sum(m.billed_ms), 0) FROM lease l JOIN lease_meter m ON m.lease_id = l.id
        WHERE l.host_id = g.host_id AND g.id = ANY (l.gpu_ids) AND l.renter_org_id <> l.host_org_id)::bigint AS billed_ms,
       coalesce(a.org_id = h.org_id, false)::boolean AS awarded, coalesce(a.why, '') AS award_reason, a.decided_at
FROM gpu g JOIN host h ON h.id = g.host_id JOIN org o ON o.id = h.org_id LEFT JOIN gpu_award a ON a.uuid = g.uuid
WHERE g.contest <> '' AND g.removed_at IS NULL
ORDER BY g.uuid, g.created_at, g.id
LIMIT @max_rows;

-- name: ContestedGPUsOfOrg :many
SELECT g.uuid, g.contest, g.model, g.host_id, h.name AS host_name, h.state AS host_state, o.name AS org_name, g.created_at
FROM gpu g JOIN host h ON h.id = g.host_id JOIN org o ON o.id = h.org_id
WHERE h.org_id = @org_id AND g.contest <> '' AND g.removed_at IS NULL
ORDER BY g.uuid, g.created_at, g.id
LIMIT @max_rows;

-- name: LockGPUsOfUUID :many
SELECT g.id, g.host_id, h.org_id FROM gpu g JOIN host h ON h.id = g.host_id
WHERE g.uuid = @uuid AND g.removed_at IS NULL
ORDER BY g.id FOR UPDATE OF g;

-- name: SetContest :exec
UPDATE gpu SET contest = @contest WHERE id = ANY (@ids::uuid[]);

-- name: PutGPUAward :exec
INSERT INTO gpu_award (uuid, org_id, why) VALUES (@uuid, @org_id, @why)
ON CONFLICT (uuid) DO UPDATE SET org_id = excluded.org_id, why = excluded.why, decided_at = clock_timestamp();
