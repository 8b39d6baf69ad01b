package api

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

type enrollInput struct {
	Keyed
	Body struct {
		Name   string `json:"name,omitempty" doc:"left out: the machine's own name" maxLength:"63"`
		Region string `json:"region" doc:"where it stands, such as eu-west"`
		Fabric string `json:"fabric,omitempty" doc:"the fast network it shares with your other hosts"`
	}
}

type enrollmentView struct {
	ID        id.Enrollment `json:"id"`
	Token     string        `json:"token" doc:"enrols one host, once; shown once"`
	ExpiresAt time.Time     `json:"expires_at"`
	Command   string        `json:"command" doc:"to be run on the host; reads the token from standard input"`
}

func (a *API) enroll(ctx context.Context, p account.Principal, in *enrollInput,
	once idem.Request) (enrollmentView, idem.Outcome, error) {
	view := func(e host.Enrollment) enrollmentView {
		return enrollmentView{e.ID, e.Token, e.ExpiresAt.UTC(), a.EnrollCommand(e.Token)}
	}
	e, out, err := a.hosts.CreateEnrollment(ctx, p, host.NewEnrollment{
		Name:   in.Body.Name,
		Region: in.Body.Region,
		Fabric: in.Body.Fabric,
	}, idem.As(once, view))
	return view(e), out, err
}

// EnrollCommand is what an operator runs on a new host. It keeps the token out of the process list: a here-string is no
// argument of any process.
func (a *API) EnrollCommand(token string) string {
	ca := ""
	if a.cfg.AgentCA != "" {
		ca = " --ca " + a.cfg.AgentCA
	}
	return fmt.Sprintf("muster-agent enroll --url %s%s <<<'%s'", a.cfg.AgentURL, ca, token)
}

type hostGPUView struct {
	ID            id.GPU `json:"id"`
	UUID          string `json:"uuid"`
	Index         int    `json:"index"`
	Model         string `json:"model"`
	VRAMMB        int64  `json:"vram_mb"`
	PowerLimitW   *int   `json:"power_limit_w" doc:"watts it may draw; null: not known"`
	PowerDefaultW *int   `json:"power_default_w" doc:"watts it was made to draw; null: not known"`
	Health        string `json:"health" enum:"healthy,suspect,quarantined"`
	HealthReason  string `json:"health_reason"`
	InUse         string `json:"in_use" doc:"what uses it on the host itself, as Xorg, 412 MiB: it is not offered; empty: nothing does"`
	Present       bool   `json:"present" doc:"in the last inventory"`
	TakenFor      string `json:"taken_for" doc:"quote, lease, own_use, maintenance; empty: free"`
}

type hostView struct {
	ID           id.Host            `json:"id"`
	Name         string             `json:"name"`
	Region       string             `json:"region"`
	Fabric       *string            `json:"fabric"`
	State        host.State         `json:"state" enum:"enrolled,active,draining,retired"`
	Reachable    bool               `json:"reachable"`
	Selling      bool               `json:"selling" doc:"can be rented now"`
	NotSelling   string             `json:"not_selling" doc:"why it cannot"`
	Simulated    bool               `json:"simulated"`
	MultiNode    bool               `json:"multi_node"`
	ReclaimAt    *time.Time         `json:"reclaim_at" doc:"what runs on it ends then: you take it back"`
	Actions      []string           `json:"actions"`
	CPUCores     int                `json:"cpu_cores"`
	RAMMB        int64              `json:"ram_mb"`
	DiskGB       int64              `json:"disk_gb"`
	DiskLimited  bool               `json:"disk_limited" doc:"nodes are held to their disk_gb; problems say why not"`
	ScratchGB    int64              `json:"scratch_gb" doc:"what all nodes' scratches may take together; 0: none is offered, problems say why if it should be"`
	Runtimes     []string           `json:"runtimes" doc:"OCI runtimes that workloads can be run with"`
	Driver       string             `json:"driver"`
	CUDAMax      string             `json:"cuda_max"`
	AgentVersion string             `json:"agent_version"`
	LastSeenAt   *time.Time         `json:"last_seen_at"`
	CreatedAt    time.Time          `json:"created_at"`
	GPUs         []hostGPUView      `json:"gpus"`
	Problems     []agentapi.Problem `json:"problems" doc:"what keeps the host from being rentable, or from being good"`
	Offers       []market.OwnOffer  `json:"offers" doc:"one per GPU model, listed or not"`
	Agent        *host.Agent        `json:"agent,omitempty" doc:"its agent and how it stands with the version it should run; of one host, not in lists"`
	DataMonth    *host.DataMonth    `json:"data_month,omitempty" doc:"what moved over its line this month for leases and of images, and the cap; of one host, not in lists"`
}

func viewHost(d host.Detail, offers []market.OwnOffer) hostView {
	now := time.Now() // for display: renting decides by PostgreSQL's clock
	v := hostView{
		ID:           d.ID,
		Name:         d.Name,
		Region:       d.Region,
		State:        d.State,
		Reachable:    d.Reachable(now),
		NotSelling:   d.Unsellable(now),
		Simulated:    d.Simulated,
		MultiNode:    d.MultiNode,
		ReclaimAt:    utc(d.ReclaimAt),
		Actions:      d.Actions(),
		CPUCores:     d.CPUCores,
		RAMMB:        d.RAMMB,
		DiskGB:       d.DiskGB,
		DiskLimited:  d.DiskLimited,
		ScratchGB:    d.ScratchGB,
		Runtimes:     append([]string{}, d.Runtimes...),
		Driver:       d.Driver,
		CUDAMax:      d.CUDAMax,
		AgentVersion: d.Status.AgentVersion,
		LastSeenAt:   utc(d.Status.LastSyncAt),
		CreatedAt:    d.CreatedAt.UTC(),
		GPUs:         []hostGPUView{},
		Problems:     append([]agentapi.Problem{}, d.Inventory.Problems...),
		Offers:       append([]market.OwnOffer{}, offers...),
	}
	if v.NotSelling == "" && !priced(offers) {
		v.NotSelling = "no price is set"
	}
	v.Selling = v.NotSelling == ""
	if d.FabricName != "" {
		v.Fabric = &d.FabricName
	}
	for _, g := range d.GPUs {
		v.GPUs = append(v.GPUs, hostGPUView{g.ID, g.UUID, g.Index, g.Model, g.VRAMMB, wattsOrNull(g.PowerLimitW),
			wattsOrNull(g.PowerDefaultW), g.Health, g.HealthReason, g.InUse, g.Present, string(g.Claim)})
	}
	return v
}

// wattsOrNull is a GPU's watts, of which 0 is not known.
func wattsOrNull(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

func priced(offers []market.OwnOffer) bool {
	for _, o := range offers {
		if o.Price != nil {
			return true
		}
	}
	return false
}

type hostsInput struct {
	Page
	Retired bool `query:"retired" doc:"list retired hosts too"`
}

func (a *API) listHosts(ctx context.Context, p account.Principal, in *hostsInput) (list[hostView], error) {
	after, err := cursor[id.Host](in.Page)
	if err != nil {
		return list[hostView]{}, err
	}
	rows, err := a.hosts.List(ctx, p, after, in.Limit+1, in.Retired)
	if err != nil {
		return list[hostView]{}, err
	}
	ids := make([]id.Host, len(rows))
	for i, d := range rows {
		ids[i] = d.ID
	}
	offers, err := a.market.OffersOf(ctx, ids...)
	if err != nil {
		return list[hostView]{}, err
	}
	return cut(rows, in.Limit, func(d host.Detail) hostView { return viewHost(d, offers[d.ID]) },
		func(d host.Detail) string { return d.ID.String() }), nil
}

func (a *API) getHost(ctx context.Context, p account.Principal, in *idInput) (hostView, error) {
	h, err := pathID[id.Host](in.ID, "host")
	if err != nil {
		return hostView{}, err
	}
	return a.host(ctx, p, h)
}

func (a *API) host(ctx context.Context, p account.Principal, h id.Host) (hostView, error) {
	d, err := a.hosts.Get(ctx, p, h)
	if err != nil {
		return hostView{}, err
	}
	offers, err := a.market.OffersOf(ctx, h)
	if err != nil {
		return hostView{}, err
	}
	v := viewHost(d, offers[h])
	agent, err := a.hosts.Agent(ctx, d.Host)
	if err != nil {
		return hostView{}, err
	}
	month, err := a.hosts.DataMonth(ctx, p, h)
	v.Agent, v.DataMonth = &agent, &month
	return v, err
}

type changeHostInput struct {
	ID   string `path:"id"`
	Body struct {
		Name        *string `json:"name,omitempty"`
		GPUModel    string  `json:"gpu_model,omitempty" doc:"price and terms are for this model only; left out: for all on the host"`
		Price       *string `json:"price_per_gpu_hour,omitempty" doc:"a decimal in quotes; running leases keep theirs"`
		Unlist      bool    `json:"unlist,omitempty" doc:"take the price off: nothing new is rented"`
		MinGPUs     *int    `json:"min_gpus,omitempty"`
		MaxDuration *int64  `json:"max_duration,omitempty" doc:"seconds; 0: no limit"`
		Channel     *string `json:"agent_channel,omitempty" doc:"whose versions its agent follows: stable, another that the platform has, or off to update by hand"`
		UpCapGB     *int64  `json:"up_cap_gb,omitempty" doc:"GB of 10^9 bytes that leases may send over its line in a calendar month (UTC) before it takes no new leases; what runs goes on; 0: no cap"`
		DownCapGB   *int64  `json:"down_cap_gb,omitempty" doc:"the same for what they receive"`
	}
}

func (a *API) changeHost(ctx context.Context, p account.Principal, in *changeHostInput) (hostView, error) {
	h, err := pathID[id.Host](in.ID, "host")
	if err != nil {
		return hostView{}, err
	}
	b := in.Body
	if b.Price != nil && b.Unlist {
		return hostView{}, fault.InvalidField("unlist", "cannot be given together with a price")
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
			return hostView{}, fault.InvalidField("price_per_gpu_hour", "%s", err)
		}
		change.Terms.Price = &price
	}
	if err := a.market.ChangeHost(ctx, p, h, change); err != nil {
		return hostView{}, err
	}
	return a.host(ctx, p, h)
}

type hostActionInput struct {
	Keyed
	ID   string `path:"id"`
	Body struct {
		Action string `json:"action" doc:"one of the host's actions"`
		Notice int64  `json:"notice,omitempty" doc:"of reclaim: seconds until what runs ends; 0: at once"`
	}
}

// actOnHost reads the offers, which no action changes, before the use case opens its transaction.
func (a *API) actOnHost(ctx context.Context, p account.Principal, in *hostActionInput,
	once idem.Request) (hostView, idem.Outcome, error) {
	h, err := pathID[id.Host](in.ID, "host")
	if err != nil {
		return hostView{}, idem.Outcome{}, err
	}
	offers, err := a.market.OffersOf(ctx, h)
	if err != nil {
		return hostView{}, idem.Outcome{}, err
	}
	view := func(d host.Detail) hostView { return viewHost(d, offers[h]) }
	act := host.Action{Name: in.Body.Action, Notice: in.Body.Notice}
	d, out, err := a.hosts.Act(ctx, p, h, act, idem.As(once, view))
	return view(d), out, err
}

// reclaimView is what taking a host back at once would cost now.
type reclaimView struct {
	Leases   int        `json:"leases" doc:"that would end"`
	Credit   money.Nano `json:"credit" doc:"what renters would get back: the last hour of each lease"`
	HostPart money.Nano `json:"host_part" doc:"of credit, taken from your earnings; the platform returns its fee"`
	Currency string     `json:"currency"`
	Free     int64      `json:"free_notice" doc:"seconds of notice from which nothing is given back"`
}

func (a *API) reclaimForecast(ctx context.Context, p account.Principal, in *idInput) (reclaimView, error) {
	h, err := pathID[id.Host](in.ID, "host")
	if err != nil {
		return reclaimView{}, err
	}
	if _, err := a.hosts.Get(ctx, p, h); err != nil {
		return reclaimView{}, err
	}
	f, err := metering.ForecastLoss(ctx, a.db.Q, h)
	if f.Currency == "" {
		f.Currency = a.cfg.Currency
	}
	return reclaimView{f.Leases, f.Credit, f.HostPart, f.Currency, int64(metering.CreditSpan.Seconds())}, err
}

func (a *API) hostPrices(ctx context.Context, p account.Principal, in *idInput) (list[market.PriceChange], error) {
	h, err := pathID[id.Host](in.ID, "host")
	if err != nil {
		return list[market.PriceChange]{}, err
	}
	all, err := a.market.PriceHistory(ctx, p, h)
	return cut(all, len(all), same[market.PriceChange], func(market.PriceChange) string { return "" }), err
}

func (a *API) hostTraffic(ctx context.Context, p account.Principal, in *idInput) (list[host.Traffic], error) {
	h, err := pathID[id.Host](in.ID, "host")
	if err != nil {
		return list[host.Traffic]{}, err
	}
	all, err := a.hosts.Traffic(ctx, p, h, 100)
	return cut(all, len(all), same[host.Traffic], func(host.Traffic) string { return "" }), err
}
