package api

import (
	"context"
	"encoding/json"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

type offersInput struct {
	Page
	Q    string `query:"q" maxLength:"2000" doc:"terms 'field op value' joined by spaces, such as: gpu_model=H100 vram_gb>=80"`
	Sort string `query:"sort" maxLength:"40" doc:"a field, '-' before it for descending" default:"price_per_gpu_hour"`
}

func (a *API) searchOffers(ctx context.Context, _ account.Principal, in *offersInput) (client.OfferPage, error) {
	return a.market.SearchOffers(ctx, market.OfferSearch{Query: in.Q, Sort: in.Sort, Limit: in.Limit, After: in.After})
}

// specBody is a cluster spec as it came: market.ParseSpec reads it, and names every fault in it.
type specBody struct{ raw json.RawMessage }

func (b *specBody) UnmarshalJSON(raw []byte) error {
	b.raw = append(b.raw[:0], raw...)
	return nil
}

// Schema documents the body as the spec itself.
func (specBody) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[market.Spec](), true, "ClusterSpec")
}

type quoteInput struct {
	Keyed
	Body specBody
}

type quoteNodeView struct {
	Rank         int         `json:"rank"`
	HostID       id.Host     `json:"host_id"`
	HostName     string      `json:"host_name"`
	OfferID      id.Offer    `json:"offer_id"`
	GPUModel     string      `json:"gpu_model"`
	GPUs         int         `json:"gpus"`
	PricePerHour money.Micro `json:"price_per_hour"`
}

type quoteView struct {
	ID             id.Quote          `json:"id"`
	State          market.QuoteState `json:"state" enum:"held,rented,returned,expired"`
	ExpiresAt      time.Time         `json:"expires_at" doc:"the GPUs are held until then"`
	CreatedAt      time.Time         `json:"created_at"`
	ClusterID      *id.Cluster       `json:"cluster_id" doc:"once rented"`
	Spec           market.Spec       `json:"spec"`
	Nodes          []quoteNodeView   `json:"nodes"`
	PricePerHour   money.Micro       `json:"price_per_hour" doc:"all-in; binds"`
	PricePerSecond money.Nano        `json:"price_per_second" doc:"for display"`
	Currency       string            `json:"currency"`
	Lines          []market.Line     `json:"lines" doc:"what the price is made of"`
}

func (a *API) viewQuote(q market.Quote) quoteView {
	spec, _ := q.Spec.Split()
	v := quoteView{
		ID: q.ID, State: q.State, ExpiresAt: q.ExpiresAt.UTC(), CreatedAt: q.CreatedAt.UTC(), Spec: spec,
		PricePerHour: q.Placement.Rate, PricePerSecond: perSecond(q.Placement.Rate), Currency: a.cfg.Currency,
		Nodes: []quoteNodeView{}, Lines: append([]market.Line{}, q.Placement.Lines()...),
	}
	if !q.Cluster.IsZero() {
		v.ClusterID = &q.Cluster
	}
	for _, n := range q.Placement.Nodes {
		v.Nodes = append(v.Nodes, quoteNodeView{n.Rank, n.Host, n.HostName, n.Offer, n.Model, len(n.GPUs), n.Rate})
	}
	return v
}

// perSecond is for display only: floor, so that nobody expects to pay less per hour than they will.
func perSecond(rate money.Micro) money.Nano { return money.CostOf(rate, 1000) }

func (a *API) quote(ctx context.Context, p account.Principal, in *quoteInput,
	once idem.Request) (quoteView, idem.Outcome, error) {
	spec, err := market.ParseSpec(in.Body.raw)
	if err != nil {
		return quoteView{}, idem.Outcome{}, err
	}
	q, out, err := a.market.Quote(ctx, p, spec, idem.As(once, a.viewQuote))
	return a.viewQuote(q), out, err
}

func (a *API) getQuote(ctx context.Context, p account.Principal, in *idInput) (quoteView, error) {
	q, err := pathID[id.Quote](in.ID, "quote")
	if err != nil {
		return quoteView{}, err
	}
	v, err := a.market.GetQuote(ctx, p, q)
	return a.viewQuote(v), err
}

func (a *API) returnQuote(ctx context.Context, p account.Principal, in *idInput) (quoteView, error) {
	q, err := pathID[id.Quote](in.ID, "quote")
	if err != nil {
		return quoteView{}, err
	}
	v, err := a.market.ReturnQuote(ctx, p, q)
	return a.viewQuote(v), err
}
