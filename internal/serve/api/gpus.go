package api

import (
	"context"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

type contestedView struct {
	Items []client.ContestedGPU `json:"items"`
}

func viewContested(gpus []host.ContestedGPU, err error) (contestedView, error) {
	v := contestedView{make([]client.ContestedGPU, len(gpus))}
	for i, g := range gpus {
		v.Items[i] = client.ContestedGPU{
			UUID: g.UUID, Contest: string(g.Contest), Offered: g.Contest.Offered(), Model: g.Model, Host: g.Host,
			HostName: g.HostName, Org: g.Org, OrgName: g.OrgName, ListedAt: g.ListedAt, Leases: g.Leases,
			BilledSeconds: g.Billed.Seconds(), Awarded: g.Awarded, AwardReason: g.AwardReason, AwardedAt: g.AwardedAt,
		}
	}
	return v, err
}

func (a *API) contestedGPUs(ctx context.Context, p account.Principal, _ *struct{}) (contestedView, error) {
	return viewContested(a.hosts.OwnContested(ctx, p))
}

func (a *API) allContestedGPUs(ctx context.Context, p account.Principal, _ *struct{}) (contestedView, error) {
	return viewContested(a.hosts.Contested(ctx, p))
}

type awardInput struct {
	Keyed
	UUID string `path:"uuid" maxLength:"100"`
	Body struct {
		Host   string `json:"host_id" doc:"the host that lists the GPU and has it"`
		Reason string `json:"reason" minLength:"1" maxLength:"500" doc:"the operators read it"`
	}
}

type awardView struct {
	UUID string  `json:"uuid"`
	Host id.Host `json:"host_id"`
}

func (a *API) awardGPU(ctx context.Context, p account.Principal, in *awardInput, once idem.Request) (awardView,
	idem.Outcome, error) {
	to, err := pathID[id.Host](in.Body.Host, "host")
	if err != nil {
		return awardView{}, idem.Outcome{}, err
	}
	view := func(h id.Host) awardView { return awardView{in.UUID, h} }
	_, out, err := a.hosts.AwardGPU(ctx, p, in.UUID, to, in.Body.Reason, idem.As(once, view))
	return view(to), out, err
}
