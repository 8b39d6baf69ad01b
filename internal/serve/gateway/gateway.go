// Package gateway is the way into a renter's running nodes: SSH that ends here and goes on as processes and ports over
// streams the hosts dial back. Images need no sshd.
//
// What always holds:
//   - Nobody comes in without a key of the org that rents the cluster, among those the cluster was given; a cluster
//     that is not there, another org's, and a wrong key look the same.
//   - A visitor reaches the ranks of the one cluster named, and only while they run.
//   - Every shell, command, file transfer and forwarding is in the audit trail with who, from where and which rank;
//     what was typed is not.
//   - Nothing is opened towards the visitor's machine: no agent, no X11, no remote forwarding.
//   - What a visitor started ends when the visitor is gone.
//   - A connection ends within half a minute of what it was opened with: the key, token or session, or the membership.
//   - All replicas show the same host keys, and any replica reaches any host.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/id"
)

const (
	handshakeWithin = 30 * time.Second
	maxConnections  = 2000
	maxStrangers    = 200 // connections that have not shown a key yet
	maxFromAddress  = 40  // of these, from one address
	maxChannels     = 200 // open at once in one connection
	maxFromOrg      = 400 // of maxConnections, to clusters of one org
	maxForwards     = 100 // destinations of one connection that are recorded one by one
)

// Config of a Gateway.
type Config struct {
	Accounts *account.Accounts
	Clusters *cluster.Clusters
	Dialer   *dialback.Dialer
	HostKeys []ssh.Signer // see cluster.Clusters.SSHHostKeys
	Log      *slog.Logger
}

// Gateway serves SSH. Safe for concurrent use.
type Gateway struct {
	cfg       Config
	strangers strangers

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	orgs  map[id.Org]int // connections and requests to apps that were let in
	ended bool
	wg    sync.WaitGroup
}

// New makes a Gateway; Serve starts it.
func New(cfg Config) *Gateway {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Gateway{
		cfg:       cfg,
		conns:     map[net.Conn]struct{}{},
		orgs:      map[id.Org]int{},
		strangers: strangers{from: map[string]int{}},
	}
}

// Serve takes connections until the listener is closed.
func (g *Gateway) Serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			g.cfg.Log.Warn("the gateway cannot take a connection", "err", err)
			time.Sleep(50 * time.Millisecond) // out of descriptors: do not spin
			continue
		}
		go g.handle(c)
	}
}

// Close cuts every connection and waits until nothing of them is left, or ctx ends. Close the listener first.
func (g *Gateway) Close(ctx context.Context) error {
	g.mu.Lock()
	g.ended = true
	for c := range g.conns {
		c.Close()
	}
	g.mu.Unlock()
	done := make(chan struct{})
	go func() { g.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// keep notes a connection; false when there are too many, or the gateway ends.
func (g *Gateway) keep(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || len(g.conns) >= maxConnections {
		return false
	}
	g.conns[c] = struct{}{}
	g.wg.Add(1)
	return true
}

func (g *Gateway) forget(c net.Conn) {
	c.Close()
	g.mu.Lock()
	delete(g.conns, c)
	g.mu.Unlock()
	g.wg.Done()
}

func (g *Gateway) handle(c net.Conn) {
	if !g.keep(c) {
		c.Close()
		return
	}
	defer g.forget(c)
	address := addressOf(c)
	if !g.strangers.enter(address) {
		return
	}
	left := sync.OnceFunc(func() { g.strangers.leave(address) })
	defer left()
	_ = c.SetDeadline(time.Now().Add(handshakeWithin))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	conn, channels, requests, err := ssh.NewServerConn(c, g.byKey(ctx, nil, address))
	if err != nil {
		g.cfg.Log.Debug("an SSH connection was refused", "address", address, "err", err)
		return
	}
	left()
	_ = c.SetDeadline(time.Time{})
	v := visitorOf(conn)
	leave, ok := g.share(v.Org)
	if !ok {
		g.cfg.Log.Info("an organisation has too many connections", "org", v.Org)
		conn.Close()
		return
	}
	defer leave()
	ctx, stop := g.whileIn(ctx, v)
	defer stop()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	g.serve(ctx, conn, channels, requests, v)
}

// share takes one of the org's places, so that no org takes all of them; false when it has none left.
func (g *Gateway) share(org id.Org) (leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.orgs[org] >= maxFromOrg {
		return nil, false
	}
	g.orgs[org]++
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.orgs[org]--; g.orgs[org] == 0 {
			delete(g.orgs, org)
		}
	}), true
}

// whileIn ends soon after what the visitor was let in with stopped counting.
func (g *Gateway) whileIn(ctx context.Context, v Visitor) (context.Context, context.CancelFunc) {
	if g.cfg.Accounts == nil {
		return context.WithCancel(ctx)
	}
	return g.cfg.Accounts.WhileIn(ctx, v.credential())
}

// ServeVisitor speaks SSH with somebody who has been let in already: nobody asks for a key. It returns when the
// connection has ended.
func (g *Gateway) ServeVisitor(ctx context.Context, c net.Conn, v Visitor) error {
	if !g.keep(c) {
		c.Close()
		return fault.New(fault.Unavailable, "Too many shells are open.")
	}
	defer g.forget(c)
	leave, ok := g.share(v.Org)
	if !ok {
		return fault.New(fault.RateLimited, "Your organisation has too many connections open: close some.")
	}
	defer leave()
	ctx, cancel := g.whileIn(ctx, v)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	cfg := g.base()
	cfg.NoClientAuth = true
	conn, channels, requests, err := ssh.NewServerConn(c, cfg)
	if err != nil {
		return err
	}
	g.serve(ctx, conn, channels, requests, v)
	return nil
}

func (g *Gateway) base() *ssh.ServerConfig {
	cfg := &ssh.ServerConfig{ServerVersion: "SSH-2.0-Muster", MaxAuthTries: 10}
	for _, k := range g.cfg.HostKeys {
		cfg.AddHostKey(k)
	}
	return cfg
}

func addressOf(c net.Conn) string {
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return c.RemoteAddr().String()
	}
	return host
}

// strangers counts connections that have not shown a key yet, so that nobody holds the door shut with them.
type strangers struct {
	mu   sync.Mutex
	all  int
	from map[string]int
}

func (s *strangers) enter(address string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxStrangers || s.from[address] >= maxFromAddress {
		return false
	}
	s.all++
	s.from[address]++
	return true
}

func (s *strangers) leave(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.from[address]--; s.from[address] == 0 {
		delete(s.from, address)
	}
}
