package gateway

import (
	"context"
	"net"
	"strconv"

	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/dialback"
)

// places returns where a program of a rank may listen on a port, as seen from inside the rank: on all addresses or on
// 127.0.0.1, on the rank's own address of the cluster's network (Ray, vLLM), on ::1 alone (Vite, Node.js). A link, a
// forwarded port and ssh -L localhost:PORT all mean this.
func places(rank, port int) []string {
	p := strconv.Itoa(port)
	return []string{net.JoinHostPort("127.0.0.1", p), net.JoinHostPort(cluster.NodeAddress(rank), p),
		net.JoinHostPort("::1", p)}
}

// dialFirst connects to the first of the addresses that accepts, and returns the first one's error if none does.
func dialFirst(ctx context.Context, node *dialback.Node, addresses []string) (*dialback.PortConn, error) {
	var first error
	for _, a := range addresses {
		conn, err := node.Port(ctx, a)
		if err == nil {
			return conn, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}
