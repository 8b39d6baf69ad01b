package api

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// hostsAPI answers the routes of hosts, their prices, metrics and earnings.
type hostsAPI struct {
	hosts      *host.Hosts
	market     *market.Market
	clusters   *cluster.Clusters
	statements *statement.Statements
	command    func(token string) string // that enrols a host
}

func (a hostsAPI) enroll(ctx context.Context, p account.Principal, in *create[client.CreateEnrollmentRequest],
	once idem.Request) (client.Enrollment, idem.Outcome, error) {
	view := func(e host.Enrollment) client.Enrollment {
		return client.Enrollment{
			ID:        e.ID,
			Token:     e.Token,
			ExpiresAt: e.ExpiresAt.UTC(),
			Command:   a.command(e.Token),
		}
	}
	e, out, err := a.hosts.CreateEnrollment(ctx, p, host.NewEnrollment{
		Name:   in.Body.Name,
		Region: in.Body.Region,
		Fabric: in.Body.Fabric,
	}, idem.As(once, view))
	return view(e), out, err
}

// EnrollCommand returns the command that an operator runs on a new host. The token is no argument of any process, which
// every user of the host could read.
func (a *API) EnrollCommand(token string) string {
	if a.cfg.InstallCommand != nil {
		return a.cfg.InstallCommand(token)
	}
	ca := ""
	if a.cfg.AgentCA != "" {
		ca = " --ca " + a.cfg.AgentCA
	}
	return fmt.Sprintf("printf %%s '%s' | sudo muster-agent enroll --url %s%s", token, a.cfg.AgentURL, ca)
}

func viewHost(d host.Detail, offers []client.OwnOffer) client.Host {
	now := time.Now() // for display: renting decides by PostgreSQL's clock
	v := client.Host{
		ID:             d.ID,
		Name:           d.Name,
		Region:         d.Region,
		State:          string(d.State),
		Reachable:      d.Reachable(now),
		NotSelling:     d.Unsellable(now),
		Simulated:      d.Simulated,
		Ephemeral:      d.Ephemeral,
		MultiNode:      d.MultiNode,
		ReclaimAt:      utc(d.ReclaimAt),
		Actions:        d.Actions(),
		CPUCores:       d.CPUCores,
		RAMMB:          d.RAMMB,
		DiskGB:         d.DiskGB,
		DiskLimited:    d.DiskLimited,
		ScratchGB:      d.ScratchGB,
		Runtimes:       append([]string{}, d.Runtimes...),
		Driver:         d.Driver,
		CUDAMax:        d.CUDAMax,
		AgentVersion:   d.Status.AgentVersion,
		LastSeenAt:     utc(d.Status.LastSyncAt),
		CreatedAt:      d.CreatedAt.UTC(),
		GPUs:           []client.HostGPU{},
		NVLinkMeasured: []client.NVLinkMeasured{},
		Problems:       []client.Problem{},
		Offers:         append([]client.OwnOffer{}, offers...),
	}
	if v.NotSelling == "" && !priced(offers) {
		v.NotSelling = "no price is set"
	}
	v.Selling = v.NotSelling == ""
	if d.FabricName != "" {
		v.Fabric = &d.FabricName
	}
	for _, p := range d.Inventory.Problems {
		v.Problems = append(v.Problems, client.Problem(p))
	}
	for _, m := range d.NVLink() {
		v.NVLinkMeasured = append(v.NVLinkMeasured,
			client.NVLinkMeasured{GPUModel: m.Model, BusbwNVLink: m.Gbps, SlowestGPU: m.Slowest, At: m.At})
	}
	for _, g := range d.GPUs {
		v.GPUs = append(v.GPUs, client.HostGPU{
			ID:            g.ID,
			UUID:          g.UUID,
			Index:         g.Index,
			Vendor:        g.Vendor,
			Kind:          g.Kind,
			Parent:        g.Parent,
			AttachName:    g.AttachName,
			Runtimes:      runtimesOf(g.Facts),
			Links:         linksOf(g.Facts),
			Model:         g.Model,
			VRAMMB:        g.VRAMMB,
			PowerLimitW:   wattsOrNull(g.PowerLimitW),
			PowerDefaultW: wattsOrNull(g.PowerDefaultW),
			Health:        g.Health,
			HealthReason:  g.HealthReason,
			Degraded:      g.SlowerThanUsual(),
			InUse:         g.InUse,
			Display:       g.Facts.Display,
			Present:       g.Present,
			TakenFor:      string(g.Claim),
		})
		if r, ok := d.Requalify[g.ID]; ok {
			v.GPUs[len(v.GPUs)-1].Requalify = r.String()
		}
	}
	return v
}

func runtimesOf(g agentapi.GPU) map[string]string {
	if g.Runtimes == nil {
		return map[string]string{}
	}
	return g.Runtimes
}

func linksOf(g agentapi.GPU) []client.HostGPULink {
	out := make([]client.HostGPULink, len(g.Links))
	for i, l := range g.Links {
		out[i] = client.HostGPULink(l)
	}
	return out
}

// wattsOrNull is a GPU's watts, of which 0 is not known.
func wattsOrNull(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

func priced(offers []client.OwnOffer) bool {
	for _, o := range offers {
		if o.Price != nil {
			return true
		}
	}
	return false
}

func (a hostsAPI) list(ctx context.Context, p account.Principal, in *client.HostsQuery) (list[client.Host], error) {
	after, err := cursor[id.Host](in.PageOf)
	if err != nil {
		return list[client.Host]{}, err
	}
	rows, err := a.hosts.List(ctx, p, after, in.Limit+1, in.Retired)
	if err != nil {
		return list[client.Host]{}, err
	}
	ids := make([]id.Host, len(rows))
	for i, d := range rows {
		ids[i] = d.ID
	}
	offers, err := a.market.OffersOf(ctx, ids...)
	if err != nil {
		return list[client.Host]{}, err
	}
	return cut(rows, in.Limit, func(d host.Detail) client.Host { return viewHost(d, offers[d.ID]) },
		func(d host.Detail) string { return d.ID.String() }), nil
}

func (a hostsAPI) get(ctx context.Context, p account.Principal, in *of[id.Host]) (client.Host, error) {
	return a.view(ctx, p, in.ID)
}

func (a hostsAPI) view(ctx context.Context, p account.Principal, h id.Host) (client.Host, error) {
	d, err := a.hosts.Get(ctx, p, h)
	if err != nil {
		return client.Host{}, err
	}
	offers, err := a.market.OffersOf(ctx, h)
	if err != nil {
		return client.Host{}, err
	}
	v := viewHost(d, offers[h])
	agent, err := a.hosts.Agent(ctx, d.Host)
	if err != nil {
		return client.Host{}, err
	}
	month, err := a.hosts.DataMonth(ctx, p, h)
	v.Agent, v.DataMonth = &agent, &month
	return v, err
}

func (a hostsAPI) change(ctx context.Context, p account.Principal,
	in *change[id.Host, client.ChangeHostRequest]) (client.Host, error) {
	b := in.Body
	if b.Price != nil && b.Unlist {
		return client.Host{}, fault.InvalidField("unlist", "cannot be given together with a price")
	}
	change := market.HostChange{
		Change: host.Change{
			Name:    b.Name,
			Channel: b.Channel,
			DataCap: host.DataCap{UpGB: b.UpCapGB, DownGB: b.DownCapGB},
		},
		GPUModel: b.GPUModel,
		Terms:    market.Terms{Unlist: b.Unlist, MinGPUs: b.MinGPUs, MaxDuration: b.MaxDuration},
	}
	if b.Price != nil {
		price, err := money.ParseMicro(*b.Price)
		if err != nil {
			return client.Host{}, fault.InvalidField("price_per_gpu_hour", "%s", err)
		}
		change.Terms.Price = &price
	}
	if err := a.market.ChangeHost(ctx, p, in.ID, change); err != nil {
		return client.Host{}, err
	}
	return a.view(ctx, p, in.ID)
}

// act reads the offers, which no action changes, before the use case opens its transaction.
func (a hostsAPI) act(ctx context.Context, p account.Principal, in *act[id.Host, client.ActOnHostRequest],
	once idem.Request) (client.Host, idem.Outcome, error) {
	offers, err := a.market.OffersOf(ctx, in.ID)
	if err != nil {
		return client.Host{}, idem.Outcome{}, err
	}
	view := func(d host.Detail) client.Host { return viewHost(d, offers[in.ID]) }
	act := host.Action{Name: in.Body.Action, Notice: in.Body.Notice, GPU: in.Body.GPU}
	d, out, err := a.hosts.Act(ctx, p, in.ID, act, idem.As(once, view))
	return view(d), out, err
}

func (a hostsAPI) reclaimForecast(ctx context.Context, p account.Principal,
	in *of[id.Host]) (client.ReclaimForecast, error) {
	return a.clusters.Hosts.ForecastReclaim(ctx, p, in.ID)
}

func (a hostsAPI) prices(ctx context.Context, p account.Principal, in *of[id.Host]) (list[client.PriceChange], error) {
	all, err := a.market.PriceHistory(ctx, p, in.ID)
	return cut(all, len(all), same[client.PriceChange], func(client.PriceChange) string { return "" }), err
}

func (a hostsAPI) priceGuide(ctx context.Context, p account.Principal,
	in *client.PriceGuideQuery) (client.PriceGuide, error) {
	return a.market.PriceGuide(ctx, p, in.GPUModel)
}

func (a hostsAPI) traffic(ctx context.Context, p account.Principal, in *of[id.Host]) (list[client.Traffic], error) {
	all, err := a.hosts.Traffic(ctx, p, in.ID, 100)
	return cut(all, len(all), same[client.Traffic], func(client.Traffic) string { return "" }), err
}

func viewContested(gpus []host.ContestedGPU, err error) (client.ContestedGPUs, error) {
	v := client.ContestedGPUs{Items: make([]client.ContestedGPU, len(gpus))}
	for i, g := range gpus {
		v.Items[i] = client.ContestedGPU{
			UUID: g.UUID, Contest: string(g.Contest), Offered: g.Contest.Offered(), Model: g.Model, Host: g.Host,
			HostName: g.HostName, Org: g.Org, OrgName: g.OrgName, ListedAt: g.ListedAt, Leases: g.Leases,
			BilledSeconds: g.Billed.Seconds(), Awarded: g.Awarded, AwardReason: g.AwardReason, AwardedAt: g.AwardedAt,
		}
	}
	return v, err
}

func (a hostsAPI) contested(ctx context.Context, p account.Principal, _ *struct{}) (client.ContestedGPUs, error) {
	return viewContested(a.hosts.OwnContested(ctx, p))
}

func (a hostsAPI) allContested(ctx context.Context, p account.Principal, _ *struct{}) (client.ContestedGPUs, error) {
	return viewContested(a.hosts.Contested(ctx, p))
}

type awardInput struct {
	Keyed
	UUID string `path:"uuid" maxLength:"100"`
	Body client.AwardGPURequest
}

func (a hostsAPI) awardGPU(ctx context.Context, p account.Principal, in *awardInput,
	once idem.Request) (client.AwardedGPU, idem.Outcome, error) {
	to, err := parseID[id.Host](in.Body.Host, "host")
	if err != nil {
		return client.AwardedGPU{}, idem.Outcome{}, err
	}
	view := func(h id.Host) client.AwardedGPU { return client.AwardedGPU{UUID: in.UUID, Host: h} }
	_, out, err := a.hosts.AwardGPU(ctx, p, in.UUID, to, in.Body.Reason, idem.As(once, view))
	return view(to), out, err
}
