package api

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/fleet/nodelog"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// clustersAPI answers the routes of clusters: rent, life, logs, shells, ports, metrics, usage.
type clustersAPI struct {
	clusters   *cluster.Clusters
	statements *statement.Statements
	leases     *metering.Leases
	logs       *nodelog.Reader
	shell      Shell
	appLink    AppLink
	log        *slog.Logger
}

// rentBody is a spec, or a quote and fields that change neither its placement nor its price.
type rentBody struct{ raw json.RawMessage }

func (b *rentBody) UnmarshalJSON(raw []byte) error {
	b.raw = append(b.raw[:0], raw...)
	return nil
}

// Schema documents both forms.
func (rentBody) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{AnyOf: []*huma.Schema{newCluster(r), rentQuote(r)}}
}

type rentInput struct {
	Keyed
	Body rentBody
}

// rent accepts either form of the body.
func (a clustersAPI) rent(ctx context.Context, p account.Principal, in *rentInput,
	once idem.Request) (c cluster.Cluster, out idem.Outcome, err error) {
	var r cluster.RentRequest
	var members map[string]json.RawMessage
	raw := in.Body.raw
	err = json.Unmarshal(raw, &members) // if it is not an object, the spec's decoder returns the fault
	if quote, ok := members["quote_id"]; ok && err == nil {
		delete(members, "quote_id")
		if raw, err = json.Marshal(members); err != nil {
			return c, out, err
		}
		if !bytes.Equal(quote, []byte("null")) {
			if err := json.Unmarshal(quote, &r.Quote); err != nil || r.Quote.IsZero() {
				return c, out, fault.InvalidField("quote_id", "is not the id of a quote")
			}
			r.Over = raw
			return a.clusters.Rentals.Rent(ctx, p, r, once)
		}
	}
	if err := r.Spec.UnmarshalJSON(raw); err != nil {
		return c, out, err
	}
	return a.clusters.Rentals.Rent(ctx, p, r, once)
}

func (a clustersAPI) list(ctx context.Context, p account.Principal, in *client.ClustersQuery) ([]byte, error) {
	after, err := cursor[id.Cluster](in.PageOf)
	if err != nil {
		return nil, err
	}
	r := cluster.ListRequest{
		Filter: cluster.Filter(in.State),
		Words:  in.Query,
		Sort:   cluster.Sort(in.Sort),
		After:  after,
		Limit:  in.Limit + 1,
	}
	return a.clusters.Views.ListEncoded(ctx, p.Org, r, func(rows []cluster.Cluster) ([]byte, error) {
		var out bytes.Buffer
		err := json.NewEncoder(&out).Encode(cut(rows, r.Limit-1, same[cluster.Cluster],
			func(c cluster.Cluster) string { return c.ID.String() }))
		return out.Bytes(), err
	})
}

func same[T any](v T) T { return v }

type clusterInput struct {
	ID id.Cluster `path:"id"`
	client.WaitQuery
}

func (a clustersAPI) get(ctx context.Context, p account.Principal, in *clusterInput) (cluster.Cluster, error) {
	if in.Wait == "" {
		return a.clusters.Views.Get(ctx, p.Org, in.ID)
	}
	state := lifecycle.State(in.Wait)
	if in.Wait == "ended" {
		state = lifecycle.Releasing
	}
	return a.clusters.Views.Wait(ctx, p.Org, in.ID, state, time.Duration(in.Timeout)*time.Second)
}

func (a clustersAPI) act(ctx context.Context, p account.Principal, in *act[id.Cluster, client.ActOnClusterRequest],
	once idem.Request) (cluster.Cluster, idem.Outcome, error) {
	return a.clusters.Rentals.ActOnce(ctx, p, in.ID, cluster.Action(in.Body.Action), once)
}

func (a clustersAPI) release(ctx context.Context, p account.Principal, in *of[id.Cluster]) (cluster.Cluster, error) {
	return a.clusters.Rentals.Release(ctx, p, in.ID)
}

type eventsInput struct {
	ID id.Cluster `path:"id"`
	client.PageOf
}

func (a clustersAPI) events(ctx context.Context, p account.Principal, in *eventsInput) (list[cluster.Event], error) {
	var after int64
	if in.After != "" {
		var err error
		if after, err = strconv.ParseInt(in.After, 10, 64); err != nil || after < 0 {
			return list[cluster.Event]{}, fault.InvalidField("query.after", "is not a cursor of this list")
		}
	}
	rows, err := a.clusters.Views.Events(ctx, p.Org, in.ID, after, in.Limit+1)
	return cut(rows, in.Limit, same[cluster.Event], func(e cluster.Event) string { return strconv.FormatInt(e.N, 10) }),
		err
}

// ssh is the gateway's SSH inside a WebSocket: a token for clusters replaces the key. Binary messages are the
// connection's bytes.
func (a clustersAPI) ssh(w http.ResponseWriter, r *http.Request, p account.Principal, in *rankInput) error {
	cl, rank := in.ID, in.Node
	if a.shell == nil {
		return fault.New(fault.Unavailable, "this server opens no shells")
	}
	if _, err := a.clusters.Ingress.Shell(r.Context(), p.Org, cl, rank); err != nil {
		return err // while a problem document can still be sent
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return nil // Accept has answered
	}
	defer ws.CloseNow()
	// The connection was taken from the server, which ends the request's context now and then. The gateway watches the
	// token itself.
	conn := websocket.NetConn(context.WithoutCancel(r.Context()), ws, websocket.MessageBinary)
	if err := a.shell(context.WithoutCancel(r.Context()), conn, p, cl, rank); err != nil {
		a.log.DebugContext(r.Context(), "ssh in a websocket ended", "cluster", cl, "err", err)
	}
	return nil
}

type rankInput struct {
	ID id.Cluster `path:"id"`
	client.RankQuery
}

type portLinkInput struct {
	ID   id.Cluster `path:"id"`
	Port int        `path:"port" minimum:"1" maximum:"65535"`
	client.RankQuery
}

func (a clustersAPI) portLink(ctx context.Context, p account.Principal, in *portLinkInput) (client.PortLink, error) {
	if _, err := a.clusters.Ingress.Shell(ctx, p.Org, in.ID, in.Node); err != nil {
		return client.PortLink{}, err
	}
	if a.appLink == nil {
		return client.PortLink{}, fault.New(fault.NotFound, "this platform shows no ports to browsers")
	}
	link, err := a.appLink(p, in.ID, in.Node, in.Port)
	return client.PortLink{URL: link}, err
}
