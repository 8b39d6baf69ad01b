package gateway

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/dialback"
)

// visit is one SSH connection, or one terminal of a page.
type visit struct {
	gateway *Gateway
	Visitor
	ctx context.Context // cancelled when the connection ends

	mu        sync.Mutex
	nodes     map[int]*dialback.Node // by rank, opened when first used
	forwarded map[string]bool        // destinations that are already in the audit log
}

func (g *Gateway) visit(ctx context.Context, who Visitor) *visit {
	return &visit{gateway: g, Visitor: who, ctx: ctx, nodes: map[int]*dialback.Node{}, forwarded: map[string]bool{}}
}

// serve serves a connection until it ends, and returns when all of its channels have ended.
func (g *Gateway) serve(ctx context.Context, conn ssh.Conn, channels <-chan ssh.NewChannel,
	requests <-chan *ssh.Request, who Visitor) {
	ctx, cancel := context.WithCancel(ctx)
	v := g.visit(ctx, who)
	defer conn.Close()
	go v.requests(requests)
	var open sync.WaitGroup
	slots := make(chan struct{}, maxChannels)
	for c := range channels {
		select {
		case slots <- struct{}{}:
		default:
			_ = c.Reject(ssh.ResourceShortage, "too many channels are open in this connection")
			continue
		}
		open.Go(func() {
			defer func() { <-slots }()
			v.channel(c)
		})
	}
	cancel()
	v.closeNodes()
	open.Wait()
}

// requests responds to global requests. It refuses all except keepalives, because nothing may be opened towards the
// visitor.
func (v *visit) requests(in <-chan *ssh.Request) {
	for r := range in {
		if r.WantReply {
			_ = r.Reply(r.Type == "keepalive@openssh.com", nil)
		}
	}
}

func (v *visit) channel(c ssh.NewChannel) {
	switch c.ChannelType() {
	case "session":
		v.session(c)
	case "direct-tcpip":
		v.forward(c)
	case "direct-streamlocal@openssh.com":
		v.streamlocal(c)
	default:
		_ = c.Reject(ssh.UnknownChannelType, "this gateway serves sessions, and forwards ports and Unix sockets of the node")
	}
}

// openLimit is how long a host may take to dial back.
const openLimit = 30 * time.Second

// node returns the connection to a rank. It opens one if there is none or if it is broken.
func (v *visit) node(rank int) (*dialback.Node, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.ctx.Err(); err != nil {
		return nil, err
	}
	if n := v.nodes[rank]; n != nil {
		select {
		case <-n.Broken():
			n.Close()
			delete(v.nodes, rank)
		default:
			return n, nil
		}
	}
	at, err := v.gateway.cfg.Clusters.Ingress.Shell(v.ctx, v.Org, v.Cluster, rank)
	if err != nil {
		return nil, err
	}
	if v.gateway.cfg.Dialer == nil {
		return nil, fault.New(fault.Unavailable, "This server has no way to hosts.")
	}
	ctx, cancel := context.WithTimeout(v.ctx, openLimit)
	defer cancel()
	n, err := v.gateway.cfg.Dialer.OpenNode(ctx, at.Host, at.Ref)
	if err != nil {
		return nil, err
	}
	v.nodes[rank] = n
	return n, nil
}

func (v *visit) closeNodes() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, n := range v.nodes {
		n.Close()
	}
}

// message returns the text of an error for the visitor.
func (v *visit) message(err error) string {
	if f := fault.From(err); f != nil {
		return f.Message
	}
	if v.ctx.Err() == nil {
		v.gateway.cfg.Log.Error("a shell failed", "cluster", v.Cluster, "err", err)
	}
	return "something went wrong on our side"
}

// join copies in both directions until both have ended.
func join(a, b interface {
	io.ReadWriteCloser
	CloseWrite() error
}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := io.Copy(a, b)
		_ = a.CloseWrite()
		if err != nil {
			b.Close() // a is closed, so b's data has no reader
		}
	}()
	_, err := io.Copy(b, a)
	_ = b.CloseWrite()
	if err != nil {
		a.Close()
	}
	<-done
}

// channelConn makes an SSH channel a net.Conn, for an SSH connection inside it.
type channelConn struct {
	ssh.Channel
	from net.Addr
}

func (c channelConn) LocalAddr() net.Addr              { return c.from }
func (c channelConn) RemoteAddr() net.Addr             { return c.from }
func (c channelConn) SetDeadline(time.Time) error      { return nil }
func (c channelConn) SetReadDeadline(time.Time) error  { return nil }
func (c channelConn) SetWriteDeadline(time.Time) error { return nil }
