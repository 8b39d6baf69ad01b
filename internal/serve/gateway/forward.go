package gateway

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/dialback"
)

// forward serves direct-tcpip channels: a connection to a port as seen from the visitor's rank (ssh -L, -W, -D), or SSH
// to another rank through this connection (ssh -J).
func (v *visit) forward(c ssh.NewChannel) {
	var m struct {
		Host       string
		Port       uint32
		OriginHost string
		OriginPort uint32
	}
	if ssh.Unmarshal(c.ExtraData(), &m) != nil || m.Port == 0 || m.Port > 65535 {
		_ = c.Reject(ssh.ConnectionFailed, "not a destination")
		return
	}
	if rank, ok := v.jumpTo(m.Host, m.Port); ok {
		v.jump(c, rank)
		return
	}
	conn, err := v.dialPort(m.Host, int(m.Port))
	if err != nil {
		_ = c.Reject(ssh.ConnectionFailed, v.message(err))
		return
	}
	defer conn.Close()
	ch, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	go ssh.DiscardRequests(requests)
	defer context.AfterFunc(v.ctx, func() { conn.Close() })()
	join(ch, conn)
}

// dialPort connects to the destination as seen from the visitor's rank.
func (v *visit) dialPort(host string, port int) (*dialback.PortConn, error) {
	addresses, err := v.resolve(host, port)
	if err != nil {
		return nil, err
	}
	if err := v.recordForward(net.JoinHostPort(host, strconv.Itoa(port))); err != nil {
		return nil, err
	}
	node, err := v.node(v.Rank)
	if err != nil {
		return nil, err
	}
	return dialFirst(v.ctx, node, addresses)
}

// recordForward writes each destination of a connection into the audit log once, because a browser may open it a
// hundred times. If a connection scans ports, the log gets maxForwards entries and one that states that more followed.
func (v *visit) recordForward(to string) error {
	v.mu.Lock()
	known, n := v.forwarded[to], len(v.forwarded)
	if n <= maxForwards {
		v.forwarded[to] = true
	}
	v.mu.Unlock()
	switch {
	case known || n > maxForwards:
		return nil
	case n == maxForwards:
		to = "more destinations, not recorded one by one"
	}
	return v.gateway.record(v.ctx, v.Visitor, "cluster.forward", v.Rank, map[string]any{"to": to})
}

// resolve returns the addresses to try for a host name, as a node would resolve it. It knows localhost, by which it
// means the rank itself (places), and the names of nodes. It does not query name servers for other names; renters must
// do that themselves.
func (v *visit) resolve(host string, port int) ([]string, error) {
	if host == "localhost" || host == "" {
		return places(v.Rank, port), nil
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return []string{netip.AddrPortFrom(a, uint16(port)).String()}, nil
	}
	rank, ok := nodeName(host)
	if !ok {
		return nil, fault.New(fault.Invalid, "%s is not known here: use localhost, node-0, node-1 … or an address", host)
	}
	c, err := v.gateway.cfg.Clusters.Views.Get(v.ctx, v.Org, v.Cluster)
	if err != nil {
		return nil, err
	}
	for _, n := range c.Nodes {
		if n.Rank == rank {
			return v.seenFrom(n, port), nil
		}
	}
	return nil, fault.New(fault.Invalid, "the cluster has no %s", host)
}

// seenFrom returns the addresses of a rank as seen from the visitor's rank, including loopback for that rank itself.
func (v *visit) seenFrom(n cluster.Node, port int) []string {
	own := net.JoinHostPort(n.Address, strconv.Itoa(port))
	if n.Rank == v.Rank {
		return append([]string{own}, places(n.Rank, port)...)
	}
	return []string{own}
}

func nodeName(host string) (rank int, ok bool) {
	digits, named := strings.CutPrefix(strings.ToLower(host), "node-")
	rank, err := strconv.Atoi(digits)
	return rank, named && err == nil && rank >= 0
}

// jumpTo reports whether the destination is the SSH port of a rank of the visitor's cluster. The gateway itself serves
// such a connection, because images need no sshd.
func (v *visit) jumpTo(host string, port uint32) (rank int, ok bool) {
	if port != 22 {
		return 0, false
	}
	if rank, ok := nodeName(host); ok {
		return rank, true
	}
	cl, rank, err := Destination(host)
	return rank, err == nil && cl == v.Cluster
}

// jump serves an SSH connection inside the channel, with its own handshake and key.
func (v *visit) jump(c ssh.NewChannel, rank int) {
	ch, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	go ssh.DiscardRequests(requests)
	inner := v.Visitor
	inner.Rank = rank
	g := v.gateway
	conn, channels, asked, err := ssh.NewServerConn(channelConn{ch, &net.UnixAddr{
		Name: v.Address,
		Net:  "ssh",
	}}, g.byKey(v.ctx, &inner, v.Address))
	if err != nil {
		g.cfg.Log.Debug("a jump was refused", "address", v.Address, "err", err)
		return
	}
	who := visitorOf(conn)
	ctx, stop := g.whileIn(v.ctx, who)
	defer stop()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	g.serve(ctx, conn, channels, asked, who)
}
