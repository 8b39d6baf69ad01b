package api

import (
	"context"
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/httprate"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// marketAPI answers the routes of offers, estimates and quotes.
type marketAPI struct {
	market *market.Market
	cfg    Config
}

func (a marketAPI) searchOffers(ctx context.Context, _ account.Principal,
	in *client.OffersQuery) (client.OfferPage, error) {
	return a.market.SearchOffers(ctx, market.OfferSearch{Query: in.Q, Sort: in.Sort, Limit: in.Limit, After: in.After})
}

// specBody is a cluster spec as received: package market decodes it, and names every fault in it.
type specBody struct{ raw json.RawMessage }

func (b *specBody) UnmarshalJSON(raw []byte) error {
	b.raw = append(b.raw[:0], raw...)
	return nil
}

// Schema documents the body.
func (specBody) Schema(r huma.Registry) *huma.Schema { return newQuote(r) }

func (a marketAPI) estimate(ctx context.Context, p account.Principal,
	in *client.EstimateQuery) (client.Estimate, error) {
	spec := market.DefaultSpec()
	spec.Nodes, spec.GPUsPerNode, spec.GPU, spec.DiskGB = in.Nodes, in.GPUsPerNode, in.GPU, in.DiskGB
	spec.Network = market.Network{Scope: market.Scope(in.Scope), MinGbps: in.MinGbps}
	if err := spec.Validate(false); err != nil {
		return client.Estimate{}, err
	}
	plan, err := a.market.Estimate(ctx, httprate.CanonicalizeIP(p.Address), spec)
	if err != nil {
		return client.Estimate{}, err
	}
	v := client.Estimate{
		PricePerHour:   plan.Rate,
		PricePerSecond: market.PerSecond(plan.Rate),
		Currency:       a.cfg.Currency,
		Nodes:          []client.EstimateNode{},
	}
	for _, n := range plan.Nodes {
		v.Nodes = append(v.Nodes, client.EstimateNode{
			Rank:            n.Rank,
			GPUModel:        n.Model,
			GPUs:            len(n.GPUs),
			PricePerGPUHour: n.Price,
			PricePerHour:    n.Rate,
		})
	}
	return v, nil
}

type quoteInput struct {
	Keyed
	Body specBody
}

func (a marketAPI) viewQuote(q market.Quote) client.Quote {
	spec, _ := q.Spec.Split()
	v := client.Quote{
		ID:             q.ID,
		State:          string(q.State),
		ExpiresAt:      q.ExpiresAt.UTC(),
		CreatedAt:      q.CreatedAt.UTC(),
		Spec:           viewSpec(spec),
		PricePerHour:   q.Placement.Rate,
		PricePerSecond: market.PerSecond(q.Placement.Rate),
		Currency:       a.cfg.Currency,
		Nodes:          []client.QuoteNode{},
		Lines:          []client.PriceLine{},
	}
	if !q.Cluster.IsZero() {
		v.ClusterID = &q.Cluster
	}
	for _, n := range q.Placement.Nodes {
		v.Nodes = append(v.Nodes, client.QuoteNode{
			Rank:         n.Rank,
			HostID:       n.Host,
			HostName:     n.HostName,
			OfferID:      n.Offer,
			GPUModel:     n.Model,
			GPUs:         len(n.GPUs),
			PricePerHour: n.Rate,
		})
	}
	for _, l := range q.Placement.Lines() {
		v.Lines = append(v.Lines, client.PriceLine(l))
	}
	return v
}

// viewSpec returns a spec with its secrets masked.
func viewSpec(s market.Spec) client.ClusterSpec {
	v := client.ClusterSpec{
		Name:            s.Name,
		Project:         s.Project,
		Labels:          s.Labels,
		Nodes:           s.Nodes,
		GPUsPerNode:     s.GPUsPerNode,
		GPU:             s.GPU,
		Image:           s.Image,
		Restart:         s.Restart,
		Egress:          s.Egress,
		Entrypoint:      s.Entrypoint,
		Command:         s.Command,
		User:            s.User,
		Env:             s.Env,
		DiskGB:          s.DiskGB,
		DiskLimited:     s.DiskLimited,
		ScratchGB:       s.ScratchGB,
		Mounts:          s.Mounts,
		Runtime:         s.Runtime,
		SSHKeyIDs:       s.SSHKeyIDs,
		MaxPricePerHour: s.MaxPricePerHour,
		MaxDuration:     s.MaxDuration,
		Budget:          s.Budget,
		Network: client.SpecNetwork{Scope: string(s.Network.Scope), MinGbps: s.Network.MinGbps,
			Fabric: s.Network.Fabric, MinBusbwGbps: s.Network.MinBusbwGbps},
		Trust:         string(s.Trust),
		OnNodeFailure: s.OnNodeFailure,
		Interruptible: s.Interruptible,
		Template:      s.Template,
		Ports:         make([]client.Port, len(s.Ports)),
	}
	for i, p := range s.Ports {
		v.Ports[i] = client.Port(p)
	}
	return v
}

func (a marketAPI) quote(ctx context.Context, p account.Principal, in *quoteInput,
	once idem.Request) (client.Quote, idem.Outcome, error) {
	spec, err := market.ParseQuoteSpec(in.Body.raw)
	if err != nil {
		return client.Quote{}, idem.Outcome{}, err
	}
	q, out, err := a.market.Quote(ctx, p, spec, idem.As(once, a.viewQuote))
	return a.viewQuote(q), out, err
}

func (a marketAPI) getQuote(ctx context.Context, p account.Principal, in *of[id.Quote]) (client.Quote, error) {
	v, err := a.market.GetQuote(ctx, p, in.ID)
	return a.viewQuote(v), err
}

func (a marketAPI) returnQuote(ctx context.Context, p account.Principal, in *of[id.Quote]) (client.Quote, error) {
	v, err := a.market.ReturnQuote(ctx, p, in.ID)
	return a.viewQuote(v), err
}
