package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
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

func (a *API) enroll(ctx context.Context, tx *db.Tx, p account.Principal, in *enrollInput) (enrollmentView, error) {
	e, err := host.CreateEnrollment(ctx, tx, host.NewEnrollment{
		Org: p.Org, User: p.User, Name: in.Body.Name, Region: in.Body.Region, Fabric: in.Body.Fabric,
	})
	if err != nil {
		return enrollmentView{}, err
	}
	return enrollmentView{e.ID, e.Token, e.ExpiresAt.UTC(), a.EnrollCommand(e.Token)}, nil
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
	rows, err := host.List(ctx, a.db.Q, p.Org, after, in.Limit+1, in.Retired)
	if err != nil {
		return list[hostView]{}, err
	}
	views := make([]hostView, len(rows))
	for i, d := range rows {
		offers, err := a.market.HostOffers(ctx, d.ID)
		if err != nil {
			return list[hostView]{}, err
		}
		views[i] = viewHost(d, offers)
	}
	return cut(views, in.Limit, same[hostView], func(v hostView) string { return v.ID.String() }), nil
}

func (a *API) getHost(ctx context.Context, p account.Principal, in *idInput) (hostView, error) {
	h, err := pathID[id.Host](in.ID, "host")
	if err != nil {
		return hostView{}, err
	}
	return a.host(ctx, p, h)
}

func (a *API) host(ctx context.Context, p account.Principal, h id.Host) (hostView, error) {
	d, err := host.Get(ctx, a.db.Q, p.Org, h)
	if err != nil {
		return hostView{}, err
	}
	offers, err := a.market.HostOffers(ctx, h)
	if err != nil {
		return hostView{}, err
	}
	v := viewHost(d, offers)
	agent, err := host.AgentOf(ctx, a.db.Q, d.Host)
	if err != nil {
		return hostView{}, err
	}
	month, err := host.DataMonthOf(ctx, a.db.Q, p.Org, h)
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
	terms := market.Terms{Unlist: b.Unlist, MinGPUs: b.MinGPUs, MaxDuration: b.MaxDuration}
	if b.Price != nil {
		price, err := money.ParseMicro(*b.Price)
		if err != nil {
			return hostView{}, fault.InvalidField("price_per_gpu_hour", "%s", err)
		}
		terms.Price = &price
	}
	err = a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if b.Name != nil {
			if err := host.Rename(ctx, tx, p.Org, h, *b.Name); err != nil {
				return err
			}
		}
		if b.Channel != nil {
			if err := host.FollowChannel(ctx, tx, p.Org, h, *b.Channel); err != nil {
				return err
			}
		}
		if b.UpCapGB != nil || b.DownCapGB != nil {
			if err := host.SetDataCap(ctx, tx, a.bus, p.Org, p.User, h, host.DataCap{
				UpGB:   b.UpCapGB,
				DownGB: b.DownCapGB,
			}); err != nil {
				return err
			}
		}
		if b.Price == nil && !b.Unlist && b.MinGPUs == nil && b.MaxDuration == nil {
			return nil
		}
		_, err := a.market.SetTerms(ctx, tx, p.Org, p.User, h, b.GPUModel, terms)
		return err
	})
	if err != nil {
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

// actOnHost reads the offers, which no action changes, before its transaction.
func (a *API) actOnHost(ctx context.Context, p account.Principal, in *hostActionInput,
	once idem.Request) (answer idem.Answer, v hostView, err error) {
	h, err := pathID[id.Host](in.ID, "host")
	if err != nil {
		return answer, v, err
	}
	offers, err := a.market.HostOffers(ctx, h)
	if err != nil {
		return answer, v, err
	}
	answer, err = a.once(ctx, once, http.StatusOK, func(ctx context.Context, tx *db.Tx) (any, error) {
		if err := a.hostAction(ctx, tx, p, h, in); err != nil {
			return nil, err
		}
		d, err := host.Get(ctx, tx.Q, p.Org, h)
		return viewHost(d, offers), err
	})
	return answer, v, err
}

func (a *API) hostAction(ctx context.Context, tx *db.Tx, p account.Principal, h id.Host, in *hostActionInput) error {
	if in.Body.Notice != 0 && in.Body.Action != "reclaim" {
		return fault.InvalidField("notice", "goes with reclaim only")
	}
	switch in.Body.Action {
	case "reclaim":
		if in.Body.Notice < 0 || in.Body.Notice > int64(host.MaxNotice.Seconds()) {
			return fault.InvalidField("notice", "want 0 to %d seconds", int64(host.MaxNotice.Seconds()))
		}
		_, err := host.Reclaim(ctx, tx, a.bus, p, h, time.Duration(in.Body.Notice)*time.Second)
		return err
	case "drain":
		return host.Drain(ctx, tx, a.bus, p, h)
	case "resume":
		return host.Resume(ctx, tx, a.bus, p, h)
	case "retire":
		return host.Retire(ctx, tx, a.bus, p, h)
	}
	return fault.InvalidField("action", "want one of drain, reclaim, resume, retire")
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
	if _, err := host.Get(ctx, a.db.Q, p.Org, h); err != nil {
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
	if _, err := host.Get(ctx, a.db.Q, p.Org, h); err != nil {
		return list[market.PriceChange]{}, err
	}
	all, err := a.market.PriceHistory(ctx, h)
	return cut(all, len(all), same[market.PriceChange], func(market.PriceChange) string { return "" }), err
}

func (a *API) hostTraffic(ctx context.Context, p account.Principal, in *idInput) (list[host.Traffic], error) {
	h, err := pathID[id.Host](in.ID, "host")
	if err != nil {
		return list[host.Traffic]{}, err
	}
	all, err := host.TrafficOf(ctx, a.db.Q, p.Org, h, 100)
	return cut(all, len(all), same[host.Traffic], func(host.Traffic) string { return "" }), err
}
