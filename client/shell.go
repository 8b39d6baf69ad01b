package client

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/coder/websocket"
	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// SSHGateway is the address for SSH into clusters: the user name is the cluster's id, a dot and the rank.
type SSHGateway struct {
	Address  string   `json:"address" doc:"host:port of the SSH gateway; ssh -p PORT CLUSTER.RANK@HOST"`
	HostKeys []string `json:"host_keys" doc:"the keys it shows, as in a known_hosts file, without the address"`
}

func handshake(ctx context.Context, conn net.Conn) (*ssh.Client, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	// TLS has authenticated the server, and the token was sent already, so a host key would prove nothing more.
	sc, channels, requests, err := ssh.NewClientConn(conn, "", &ssh.ClientConfig{
		User:            "token",
		HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fault.Wrap(err, fault.Unavailable, "the connection to the node broke off")
	}
	return ssh.NewClient(sc, channels, requests), nil
}

// PortLink is a link to an HTTP port of a running rank.
type PortLink struct {
	URL string `json:"url" doc:"opens the port in a browser; anyone who has it has access, so do not share it"`
}

// SSH opens an SSH connection to a rank of a running cluster with the client's token: no key is needed. Sessions run
// in the rank's container and begin in the image's working directory; Dial reaches ports as the rank sees them. ctx
// bounds the opening only; the caller closes the connection.
func (s ClustersService) SSH(ctx context.Context, cluster id.Cluster, rank int) (*ssh.Client, error) {
	target := "ws" + strings.TrimPrefix(s.c.base, "http") + "/api/v1/clusters/" + cluster.String() + "/ssh?" +
		url.Values{"node": {strconv.Itoa(rank)}}.Encode()
	ws, resp, err := websocket.Dial(ctx, target, &websocket.DialOptions{
		HTTPClient: s.c.http, CompressionMode: websocket.CompressionDisabled,
		HTTPHeader: http.Header{"Authorization": {"Bearer " + s.c.token}, "User-Agent": {s.c.agent}},
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, problemOf(resp)
		}
		return nil, s.c.unreachable(err)
	}
	conn := websocket.NetConn(context.WithoutCancel(ctx), ws, websocket.MessageBinary)
	return handshake(ctx, conn)
}
