package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// AgentChannel is the version that the agents of a channel's hosts should run.
type AgentChannel struct {
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	Source    string    `json:"source"`
	Percent   int       `json:"percent"`
	Try       int       `json:"try"`
	Stopped   string    `json:"stopped"` // why it stopped by itself; "": it goes on
	ChangedAt time.Time `json:"changed_at"`
}

// AgentCount is how many hosts of a channel run a version, and how they stand with the one they should run.
type AgentCount struct {
	Channel string `json:"channel"`
	Version string `json:"agent_version"`
	State   string `json:"update_state"`
	Update  string `json:"update_version"`
	Hosts   int64  `json:"hosts"`
}

// Agents are all channels, and how many hosts run which version.
type Agents struct {
	Channels []AgentChannel `json:"channels"`
	Hosts    []AgentCount   `json:"hosts"`
}

// Agents reads them. It and SetAgentChannel are for platform operators.
func (c *Client) Agents(ctx context.Context) (Agents, error) {
	return get[Agents](ctx, c, "/admin/agents", nil)
}

// ChannelChange is what a channel shall be.
type ChannelChange struct {
	Version string `json:"version"`
	Source  string `json:"source"`
	Percent int    `json:"percent"`         // 0 to 100
	Again   bool   `json:"again,omitempty"` // hosts that gave the version up try it again
}

// SetAgentChannel says which version a channel's hosts should run, and how many of them.
func (c *Client) SetAgentChannel(ctx context.Context, name string, n ChannelChange) (out AgentChannel, err error) {
	return out, c.call(ctx, http.MethodPut, "/admin/agents/"+url.PathEscape(name), nil, n, &out)
}
