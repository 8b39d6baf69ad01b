-- Agents of hosts: what they can do, and which version they should run.

-- name: HostAgentOrder :one
SELECT coalesce(a.channel, 'stable') AS channel, coalesce(a.capabilities, '{}')::text[] AS capabilities,
       coalesce(a.update_state, '') AS update_state, coalesce(a.update_version, '') AS update_version,
       coalesce(a.update_try, 0)::integer AS update_try, coalesce(a.update_detail, '') AS update_detail,
       coalesce(c.version, '') AS version, coalesce(c.source, '') AS source, coalesce(c.percent, 0)::integer AS percent,
       coalesce(c.try, 0)::integer AS try, coalesce(c.stopped, '') AS stopped
FROM host h
LEFT JOIN host_agent a ON a.host_id = h.id
LEFT JOIN agent_channel c ON c.name = coalesce(a.channel, 'stable')
WHERE h.id = @host_id;

-- name: HostAgentOrders :many
SELECT h.id, coalesce(a.channel, 'stable') AS channel, coalesce(a.capabilities, '{}')::text[] AS capabilities,
       coalesce(a.update_state, '') AS update_state, coalesce(a.update_version, '') AS update_version,
       coalesce(a.update_try, 0)::integer AS update_try, coalesce(a.update_detail, '') AS update_detail,
       coalesce(c.version, '') AS version, coalesce(c.source, '') AS source, coalesce(c.percent, 0)::integer AS percent,
       coalesce(c.try, 0)::integer AS try, coalesce(c.stopped, '') AS stopped
FROM host h
LEFT JOIN host_agent a ON a.host_id = h.id
LEFT JOIN agent_channel c ON c.name = coalesce(a.channel, 'stable')
WHERE h.id = ANY(@hosts::uuid[]);

-- name: PutHostAgent :exec
INSERT INTO host_agent (host_id, capabilities, update_state, update_version, update_try, update_detail)
VALUES (@host_id, @capabilities, @update_state, @update_version, @update_try, @update_detail)
ON CONFLICT (host_id) DO UPDATE
SET capabilities = excluded.capabilities, update_state = excluded.update_state, update_version = excluded.update_version,
    update_try = excluded.update_try, update_detail = excluded.update_detail, changed_at = clock_timestamp();

-- name: PutHostAgents :exec
-- The capabilities of an agent are a list with commas.
INSERT INTO host_agent (host_id, capabilities, update_state, update_version, update_try, update_detail)
SELECT unnest(@hosts::uuid[]), string_to_array(unnest(@capabilities::text[]), ','), unnest(@update_states::text[]), unnest(@update_versions::text[]),
       unnest(@update_tries::integer[]), unnest(@update_details::text[])
ON CONFLICT (host_id) DO UPDATE
SET capabilities = excluded.capabilities, update_state = excluded.update_state, update_version = excluded.update_version,
    update_try = excluded.update_try, update_detail = excluded.update_detail, changed_at = clock_timestamp();

-- name: SetHostChannel :exec
INSERT INTO host_agent (host_id, channel) VALUES (@host_id, @channel)
ON CONFLICT (host_id) DO UPDATE SET channel = excluded.channel;

-- name: LockAgentChannel :one
SELECT * FROM agent_channel WHERE name = @name FOR UPDATE;

-- name: CountUpdates :one
SELECT count(*) FILTER (WHERE update_state = 'done') AS done, count(*) FILTER (WHERE update_state = 'rolled_back') AS failed
FROM host_agent WHERE channel = @channel AND update_version = @version AND update_try = @try;

-- name: StopAgentChannel :exec
UPDATE agent_channel SET stopped = @why WHERE name = @name;

-- name: PutAgentChannel :one
INSERT INTO agent_channel (name, version, source, percent, changed_by)
VALUES (@name, @version, @source, @percent, @changed_by)
ON CONFLICT (name) DO UPDATE
SET version = excluded.version, source = excluded.source, percent = excluded.percent, changed_by = excluded.changed_by,
    try = CASE WHEN @again::boolean THEN agent_channel.try + 1 ELSE agent_channel.try END,
    stopped = CASE WHEN @again::boolean THEN '' ELSE agent_channel.stopped END, changed_at = clock_timestamp()
RETURNING *;

-- name: ListAgentChannels :many
SELECT * FROM agent_channel ORDER BY name;

-- name: AgentVersions :many
SELECT coalesce(a.channel, 'stable')::text AS channel, s.agent_version, coalesce(a.update_state, '')::text AS update_state,
       coalesce(a.update_version, '')::text AS update_version, count(*) AS hosts
FROM host h
JOIN host_status s ON s.host_id = h.id
LEFT JOIN host_agent a ON a.host_id = h.id
WHERE h.retired_at IS NULL
GROUP BY 1, 2, 3, 4
ORDER BY 1, 2, 3, 4;
