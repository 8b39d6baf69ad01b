package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fleet/host"
)

func (a *API) listAgents(ctx context.Context, p account.Principal, _ *struct{}) (client.Agents, error) {
	channels, hosts, err := a.hosts.Channels(ctx, p)
	return client.Agents{Channels: channels, Hosts: hosts}, err
}

type setChannelInput struct {
	Name string `path:"name"`
	Body struct {
		Version string `json:"version" doc:"a release's number, such as v1.4.0"`
		Source  string `json:"source" doc:"https address of the folder with SHA256SUMS, SHA256SUMS.sig and the archives"`
		Percent int    `json:"percent" doc:"of the channel's hosts; who is among a few is among more" minimum:"0" maximum:"100"`
		Again   bool   `json:"again,omitempty" doc:"hosts that gave this version up try it again"`
	}
}

func (a *API) setChannel(ctx context.Context, p account.Principal,
	in *setChannelInput) (client.AgentChannel, error) {
	return a.hosts.SetChannel(ctx, p, host.NewChannel{
		Name:    in.Name,
		Version: in.Body.Version,
		Source:  in.Body.Source,
		Percent: in.Body.Percent,
		Again:   in.Body.Again,
	})
}
