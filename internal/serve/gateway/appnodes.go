package gateway

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/id"
)

type nodeKey struct {
	org     id.Org
	cluster id.Cluster
	rank    int
}

// keepNode is how long an unused connection to a node stays open.
const keepNode = time.Minute

// nodes is the connections to ranks for browsers. All browsers that view a rank share one.
type nodes struct {
	open func(ctx context.Context, k nodeKey) (*dialback.Node, error)

	mu   sync.Mutex
	held map[nodeKey]*held
	over bool
}

type held struct {
	mu    sync.Mutex // one caller opens, the others wait
	node  *dialback.Node
	users int         // guarded by nodes.mu
	idle  *time.Timer // guarded by nodes.mu
}

func (p *Apps) openNode(ctx context.Context, k nodeKey) (*dialback.Node, error) {
	at, err := p.gateway.cfg.Clusters.Ingress.Shell(ctx, k.org, k.cluster, k.rank)
	if err != nil {
		return nil, err
	}
	if p.gateway.cfg.Dialer == nil {
		return nil, fault.New(fault.Unavailable, "This server has no way to hosts.")
	}
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	return p.gateway.cfg.Dialer.OpenNode(ctx, at.Host, at.Ref)
}

// Close closes the connections to all nodes, and everything that uses them.
func (p *Apps) Close(context.Context) error {
	p.nodes.mu.Lock()
	p.nodes.over = true
	all := p.nodes.held
	p.nodes.held = map[nodeKey]*held{}
	p.nodes.mu.Unlock()
	for _, h := range all {
		h.drop()
	}
	return nil
}

// port opens a connection to a port of a rank.
func (n *nodes) port(ctx context.Context, k nodeKey, port int) (net.Conn, error) {
	h, err := n.take(k)
	if err != nil {
		return nil, err
	}
	conn, err := n.dial(ctx, h, k, port)
	if err != nil {
		n.give(k, h)
		return nil, err
	}
	return &heldConn{PortConn: conn, done: sync.OnceFunc(func() { n.give(k, h) })}, nil
}

func (n *nodes) dial(ctx context.Context, h *held, k nodeKey, port int) (*dialback.PortConn, error) {
	node, err := h.get(ctx, func(ctx context.Context) (*dialback.Node, error) { return n.open(ctx, k) })
	if err != nil {
		return nil, err
	}
	return dialFirst(ctx, node, places(k.rank, port))
}

func (n *nodes) take(k nodeKey) (*held, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		return nil, fault.New(fault.Unavailable, "This server is stopping.")
	}
	h := n.held[k]
	if h == nil {
		h = &held{}
		n.held[k] = h
	}
	h.users++
	if h.idle != nil {
		h.idle.Stop()
		h.idle = nil
	}
	return h, nil
}

func (n *nodes) give(k nodeKey, h *held) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.users--; h.users > 0 {
		return
	}
	h.idle = time.AfterFunc(keepNode, func() {
		n.mu.Lock()
		unused := h.users == 0 && n.held[k] == h
		if unused {
			delete(n.held, k)
		}
		n.mu.Unlock()
		if unused {
			h.drop()
		}
	})
}

// get returns the connection to the node. It opens one if there is none or if it is broken.
func (h *held) get(ctx context.Context, open func(context.Context) (*dialback.Node, error)) (*dialback.Node, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.node != nil {
		select {
		case <-h.node.Broken():
			h.node.Close()
			h.node = nil
		default:
			return h.node, nil
		}
	}
	var err error
	h.node, err = open(ctx)
	return h.node, err
}

func (h *held) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.node != nil {
		h.node.Close()
		h.node = nil
	}
}

// heldConn is a connection to a port. Until it is closed, the connection to its node stays open.
type heldConn struct {
	*dialback.PortConn
	done func()
}

func (c *heldConn) Close() error {
	defer c.done()
	return c.PortConn.Close()
}
