package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/stripe/outbox"
	"github.com/musterhq/muster/internal/stripe/reconcile"
)

// platformAPI answers the routes of the platform itself: agents, floors, sending, secrets, dead letters, stores.
type platformAPI struct {
	clusters   *cluster.Clusters
	hosts      *host.Hosts
	notices    *notify.Notices
	outbox     *outbox.Outbox
	reconciler *reconcile.Reconciler
	volumes    *volume.Volumes
}

func (a platformAPI) listAgents(ctx context.Context, p account.Principal, _ *struct{}) (client.Agents, error) {
	channels, hosts, err := a.hosts.Channels(ctx, p)
	return client.Agents{Channels: channels, Hosts: hosts}, err
}

type setChannelInput struct {
	Name string `path:"name"`
	Body client.SetAgentChannelRequest
}

func (a platformAPI) setChannel(ctx context.Context, p account.Principal,
	in *setChannelInput) (client.AgentChannel, error) {
	return a.hosts.SetChannel(ctx, p, host.NewChannel{
		Name:    in.Name,
		Version: in.Body.Version,
		Source:  in.Body.Source,
		Percent: in.Body.Percent,
		Again:   in.Body.Again,
	})
}

// maxDeadLetters bounds the list of rows that background jobs cannot process.
const maxDeadLetters = 500

func (a platformAPI) deadLetters(ctx context.Context, _ account.Principal, _ *struct{}) (client.DeadLetters, error) {
	rows, err := a.notices.DeadLetters(ctx, maxDeadLetters)
	return client.DeadLetters{Items: rows}, err
}

func (a platformAPI) sending(ctx context.Context, p account.Principal, _ *struct{}) (outbox.Sending, error) {
	return a.outbox.Sending(ctx, p)
}

func (a platformAPI) setSending(ctx context.Context, p account.Principal,
	in *replace[client.SetSendingRequest]) (outbox.Sending, error) {
	out, _, err := a.outbox.SetSending(ctx, p, in.Body.Paused, in.Body.Reason, idem.Request{})
	return out, err
}

func (a platformAPI) sealState(ctx context.Context, p account.Principal, _ *struct{}) (cluster.SealState, error) {
	return a.clusters.Secrets.State(ctx, p)
}
