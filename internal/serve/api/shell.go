package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

type sshGatewayView struct {
	Address  string   `json:"address" doc:"host:port of the SSH gateway; ssh -p PORT CLUSTER.RANK@HOST"`
	HostKeys []string `json:"host_keys" doc:"the keys it shows, as in a known_hosts file, without the address"`
}

func (a *API) sshGateway(context.Context, account.Principal, *struct{}) (sshGatewayView, error) {
	if a.cfg.GatewayAddr == "" {
		return sshGatewayView{}, fault.New(fault.NotFound, "this platform has no SSH gateway")
	}
	return sshGatewayView{Address: a.cfg.GatewayAddr, HostKeys: a.cfg.SSHHostKeys}, nil
}

func sshParams() []*huma.Param {
	return []*huma.Param{
		{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}},
		{Name: "node", In: "query", Schema: &huma.Schema{Type: huma.TypeInteger}, Description: "the rank; left out: 0"},
	}
}

// clusterSSH is the gateway's SSH inside a WebSocket: whoever has a token for clusters needs no key. Binary messages
// are the connection's bytes.
func (a *API) clusterSSH(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	cl, err := pathID[id.Cluster](chi.URLParam(r, "id"), "cluster")
	if err != nil {
		return err
	}
	rank := 0
	if n := r.URL.Query().Get("node"); n != "" {
		if rank, err = strconv.Atoi(n); err != nil {
			return fault.InvalidField("query.node", "has to be a rank")
		}
	}
	if a.shell == nil {
		return fault.New(fault.Unavailable, "this server opens no shells")
	}
	if _, err := a.clusters.Shell(r.Context(), p.Org, cl, rank); err != nil {
		return err // while it can still be told as a problem
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

type portLinkInput struct {
	ID   string `path:"id"`
	Port int    `path:"port" minimum:"1" maximum:"65535"`
	Node int    `query:"node" minimum:"0" doc:"the rank; left out: 0"`
}

type portLinkView struct {
	URL string `json:"url" doc:"opens the port in a browser; whoever has it gets in, so do not pass it on"`
}

func (a *API) portLink(ctx context.Context, p account.Principal, in *portLinkInput) (portLinkView, error) {
	cl, err := pathID[id.Cluster](in.ID, "cluster")
	if err != nil {
		return portLinkView{}, err
	}
	if _, err := a.clusters.Shell(ctx, p.Org, cl, in.Node); err != nil {
		return portLinkView{}, err
	}
	if a.appLink == nil {
		return portLinkView{}, fault.New(fault.NotFound, "this platform shows no ports to browsers")
	}
	link, err := a.appLink(p, cl, in.Node, in.Port)
	return portLinkView{URL: link}, err
}
