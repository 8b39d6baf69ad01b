-- +goose Up
-- Which version of the agent the hosts of a channel should run, and how many of them.
CREATE TABLE agent_channel (
    name        text PRIMARY KEY,
    version     text NOT NULL,
    source      text NOT NULL,                    -- https address of the release's folder
    percent     integer NOT NULL CHECK (percent BETWEEN 0 AND 100),
    try         integer NOT NULL DEFAULT 1,       -- rises when it is set again: hosts that gave the version up begin anew
    stopped     text NOT NULL DEFAULT '',         -- why it stopped by itself; '' = it goes on
    changed_by  uuid NOT NULL REFERENCES app_user,
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What a host says of its agent beyond its version. A host without a row has an agent that says nothing of it.
CREATE TABLE host_agent (
    host_id        uuid PRIMARY KEY REFERENCES host,
    channel        text NOT NULL DEFAULT 'stable',  -- 'off' = the operator updates by hand
    capabilities   text[] NOT NULL DEFAULT '{}',
    update_state   text NOT NULL DEFAULT '',        -- agentapi.UpdateState
    update_version text NOT NULL DEFAULT '',
    update_try     integer NOT NULL DEFAULT 0,
    update_detail  text NOT NULL DEFAULT '',
    changed_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX host_agent_update ON host_agent (channel, update_version, update_try);
