-- The link: keys, sessions, and what reports change.

-- name: LinkByKey :one
SELECT k.host_id, k.attest_key, k.revoked_at, h.org_id, h.name, h.state,
       s.session, s.connected, s.nats_server, s.nats_client, s.instance
FROM host_key k
JOIN host h ON h.id = k.host_id
JOIN host_status s ON s.host_id = k.host_id
WHERE k.link_key = @link_key;

-- name: LinksByKeys :many
-- LinkByKey of several keys.
SELECT k.link_key, k.host_id, k.revoked_at, h.org_id, h.name, h.state,
       s.session, s.connected, s.nats_server, s.nats_client, s.instance
FROM host_key k
JOIN host h ON h.id = k.host_id
JOIN host_status s ON s.host_id = k.host_id
WHERE k.link_key = ANY (@link_keys::text[]);

-- name: HostLinkKeys :many
SELECT link_key FROM host_key WHERE host_id = @host_id AND revoked_at IS NULL;

-- name: OpenHostSessions :many
-- Of several connections, those that become their hosts' own: of two of one host one does. They are locked in one order.
WITH free AS (
    SELECT f.host_id FROM host_status f WHERE f.host_id = ANY (@hosts::uuid[]) ORDER BY f.host_id FOR NO KEY UPDATE
)
UPDATE host_status s
SET session = s.session + 1, connected = true, connected_at = clock_timestamp(),
    nats_server = u.nats_server, nats_client = u.nats_client, instance = u.instance, address = u.address
FROM (SELECT unnest(@hosts::uuid[]) AS host_id, unnest(@previous::bigint[]) AS previous, unnest(@nats_servers::text[]) AS nats_server,
             unnest(@nats_clients::bigint[]) AS nats_client, unnest(@instances::text[]) AS instance,
             unnest(@addresses::text[]) AS address) u
JOIN free ON free.host_id = u.host_id
WHERE s.host_id = u.host_id AND s.session = u.previous
RETURNING s.host_id, s.session, s.nats_server, s.nats_client;

-- name: CloseHostSession :one
UPDATE host_status SET connected = false, disconnected_at = clock_timestamp()
WHERE nats_server = @nats_server AND nats_client = @nats_client AND connected AND host_id = @host_id
RETURNING host_id;

-- name: ConnectedWithoutKey :many
-- Only hosts of which a key was revoked are looked at.
SELECT s.host_id, s.nats_server, s.nats_client
FROM host_status s
WHERE s.host_id IN (SELECT r.host_id FROM host_key r WHERE r.revoked_at IS NOT NULL)
  AND s.connected AND NOT EXISTS (SELECT FROM host_key k WHERE k.host_id = s.host_id AND k.revoked_at IS NULL);

-- name: HostForReport :one
SELECT org_id, state, revision, needs_full_report, engine_away,
       (up_cap_gb IS NOT NULL OR down_cap_gb IS NOT NULL OR capped_until IS NOT NULL)::boolean AS has_data_cap
FROM host WHERE id = @id;

-- name: HostsForReport :many
-- What decides whether full reports without leases of these hosts can be stored together. ended: a lease ended of which such a report
-- may prove that it is gone. logs_wait: such a report may say that a host no longer keeps the logs of leases.
SELECT h.id, h.org_id, h.state, h.revision, h.needs_full_report, h.engine_away,
       EXISTS (SELECT FROM lease l WHERE l.host_id = h.id AND l.gone_at IS NULL AND l.ended_at IS NOT NULL)::boolean AS ended,
       (EXISTS (SELECT FROM node_status s JOIN node n ON n.id = s.node_id WHERE s.logs_kept <> '{}' AND n.host_id = h.id)
        OR EXISTS (SELECT FROM node_replacement r WHERE r.lost_host = h.id AND r.logs_kept <> '{}'))::boolean AS logs_wait
FROM host h WHERE h.id = ANY(@hosts::uuid[]);

-- name: TouchHostStatus :one
UPDATE host_status
SET last_sync_at = clock_timestamp(),
    full_report_at = CASE WHEN @full_report::boolean THEN clock_timestamp() ELSE full_report_at END,
    revision_seen = greatest(revision_seen, @revision_seen::bigint),
    agent_version = @agent_version, protocol = @protocol
WHERE host_id = @host_id
RETURNING last_sync_at;

-- name: TouchHostStatuses :many
-- Is TouchHostStatus for full reports of several hosts, which are locked in one order.
WITH locked AS (
    SELECT f.host_id FROM host_status f WHERE f.host_id = ANY(@hosts::uuid[]) ORDER BY f.host_id FOR NO KEY UPDATE
)
UPDATE host_status s
SET last_sync_at = clock_timestamp(), full_report_at = clock_timestamp(), revision_seen = greatest(s.revision_seen, u.revision_seen),
    agent_version = u.agent_version, protocol = u.protocol
FROM (SELECT unnest(@hosts::uuid[]) AS host_id, unnest(@revisions_seen::bigint[]) AS revision_seen,
             unnest(@agent_versions::text[]) AS agent_version, unnest(@protocols::integer[]) AS protocol) u
JOIN locked ON locked.host_id = u.host_id
WHERE s.host_id = u.host_id
RETURNING s.host_id, s.last_sync_at;

-- name: TouchHosts :exec
-- Notes that hosts reported in full and that nothing was new.
UPDATE host_status SET last_sync_at = clock_timestamp(), full_report_at = clock_timestamp()
WHERE host_id IN (SELECT s.host_id FROM host_status s WHERE s.host_id = ANY(@hosts::uuid[]) ORDER BY s.host_id FOR NO KEY UPDATE);

-- name: UnshownEndedLeases :many
SELECT id FROM lease
WHERE host_id = @host_id AND gone_at IS NULL AND ended_at IS NOT NULL AND NOT (id = ANY(@shown::uuid[]))
ORDER BY id;

-- name: EndLeaseClaims :exec
WITH ending AS (
    SELECT c.id FROM gpu_claim c
    WHERE c.ref = ANY(@leases::uuid[]) AND c.kind = 'lease' AND c.host_id = @host_id AND c.ended_at IS NULL
    ORDER BY c.gpu_id
    FOR UPDATE
)
UPDATE gpu_claim c SET ended_at = clock_timestamp(), end_reason = @reason
FROM ending
WHERE c.id = ending.id;

-- name: CountForeignShown :one
SELECT count(*) FROM unnest(@shown::uuid[]) AS shown(id)
WHERE NOT EXISTS (SELECT FROM lease l WHERE l.id = shown.id AND l.host_id = @host_id AND l.ended_at IS NULL);

-- name: HostReported :exec
UPDATE host
SET state = CASE WHEN state = 'enrolled' THEN 'active' ELSE state END,
    needs_full_report = needs_full_report AND NOT @clean::boolean
WHERE id = @id;

-- name: HostsReported :exec
-- Is HostReported for several hosts, which are locked, and on which nothing is that should not be there.
UPDATE host SET state = CASE WHEN state = 'enrolled' THEN 'active' ELSE state END, needs_full_report = false
WHERE id = ANY(@hosts::uuid[]);

-- name: SetEngineAway :exec
UPDATE host SET engine_away = @why, needs_full_report = needs_full_report OR @why <> '' WHERE id = @id;

-- name: SilentServers :many
-- NATS servers of connected hosts without a pulse and without a report of these hosts in the last two minutes.
SELECT s.nats_server FROM host_status s
WHERE s.connected AND s.nats_server <> '' AND NOT EXISTS (
    SELECT FROM pulse p WHERE p.listener = s.nats_server AND p.last_ms > extract(epoch FROM clock_timestamp()) * 1000 - 120000)
GROUP BY s.nats_server
HAVING max(greatest(s.last_sync_at, s.connected_at)) < clock_timestamp() - interval '2 minutes'
ORDER BY 1;

-- name: CloseServerSessions :execrows
UPDATE host_status SET connected = false, disconnected_at = clock_timestamp()
WHERE nats_server = @nats_server AND connected;
