// Package gateway gives renters access to their running nodes. It terminates SSH connections and forwards them as
// processes and ports over streams for which the hosts dial back. Images need no sshd.
//
// Invariants:
//   - Access by SSH needs a key that belongs to the organisation that rents the cluster and that the cluster was given.
//     A missing cluster, another organisation's cluster and a wrong key cause the same error.
//   - A visitor reaches only the ranks of the named cluster, and only while they run.
//   - Every shell, command, file transfer and forwarding is in the audit log with user, address and rank; its input is
//     not.
//   - Nothing is opened towards the visitor's machine: no agent forwarding, no X11, no remote forwarding.
//   - What a visitor started ends when the visitor disconnects.
//   - A connection ends within 30 seconds after its credential (key, token, session or membership) becomes invalid.
//   - All replicas have the same host keys, and any replica reaches any host.
package gateway

import (
	"context"
	"errors"
	"io"
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
	maxStrangers    = 200 // connections before authentication
	maxFromAddress  = 40  // the same, per address
	maxChannels     = 200 // open at the same time, per connection
	maxFromOrg      = 400 // per organisation, of maxConnections
	maxForwards     = 100 // destinations recorded individually, per connection
)

// Config configures a Gateway.
type Config struct {
	Accounts *account.Accounts
	Clusters *cluster.Clusters
	Dialer   *dialback.Dialer
	HostKeys []ssh.Signer // see cluster.Ingress.SSHHostKeys
	Log      *slog.Logger
}

// Gateway serves SSH. It is safe for concurrent use.
type Gateway struct {
	cfg       Config
	strangers strangers

	mu    sync.Mutex
	conns map[io.Closer]struct{}
	orgs  map[id.Org]int // authenticated connections and requests to apps
	ended bool
	wg    sync.WaitGroup
}

// New returns a Gateway. Call Serve to start it.
func New(cfg Config) *Gateway {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Gateway{
		cfg:       cfg,
		conns:     map[io.Closer]struct{}{},
		orgs:      map[id.Org]int{},
		strangers: strangers{from: map[string]int{}},
	}
}

// Serve accepts connections until the listener is closed.
func (g *Gateway) Serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			g.cfg.Log.Warn("the gateway cannot take a connection", "err", err)
			time.Sleep(50 * time.Millisecond) // avoid spinning if there are no file descriptors left
			continue
		}
		go g.handle(c)
	}
}

// Close closes all connections and waits until they have ended or ctx is done. Close the listener first.
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

// keep registers a connection. It returns false if there are too many or the gateway is closing.
func (g *Gateway) keep(c io.Closer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || len(g.conns) >= maxConnections {
		return false
	}
	g.conns[c] = struct{}{}
	g.wg.Add(1)
	return true
}

func (g *Gateway) forget(c io.Closer) {
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

// share reserves one of the organisation's connections, so that no organisation uses all of them. It returns false if
// none is left.
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

// whileIn returns a context that is cancelled soon after the visitor's credential becomes invalid.
func (g *Gateway) whileIn(ctx context.Context, v Visitor) (context.Context, context.CancelFunc) {
	if g.cfg.Accounts == nil {
		return context.WithCancel(ctx)
	}
	return g.cfg.Accounts.Credentials.WhileIn(ctx, v.credential())
}

// ServeVisitor serves SSH to a visitor who is already authenticated, without asking for a key. It returns when the
// connection has ended.
func (g *Gateway) ServeVisitor(ctx context.Context, c net.Conn, v Visitor) error {
	ctx, leave, err := g.enter(ctx, c, v)
	if err != nil {
		return err
	}
	defer leave()
	cfg := g.base()
	cfg.NoClientAuth = true
	conn, channels, requests, err := ssh.NewServerConn(c, cfg)
	if err != nil {
		return err
	}
	g.serve(ctx, conn, channels, requests, v)
	return nil
}

// enter registers the connection of a visitor who is already authenticated. c is closed when the visitor's credential
// becomes invalid, when the gateway closes and by leave. Faults: Unavailable, RateLimited.
func (g *Gateway) enter(ctx context.Context, c io.Closer, v Visitor) (_ context.Context, leave func(), err error) {
	if !g.keep(c) {
		c.Close()
		return nil, nil, fault.New(fault.Unavailable, "Too many shells are open.")
	}
	giveBack, ok := g.share(v.Org)
	if !ok {
		g.forget(c)
		return nil, nil, fault.New(fault.RateLimited, "Your organisation has too many connections open: close some.")
	}
	ctx, cancel := g.whileIn(ctx, v)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	return ctx, func() {
		stop()
		cancel()
		giveBack()
		g.forget(c)
	}, nil
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

// strangers counts the connections that are not authenticated yet, so that they cannot block all others.
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
