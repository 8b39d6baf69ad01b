package hostlink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
)

// NATS accounts.
const (
	accountAuth     = "MUSTER_AUTH"     // authorisation of connections
	accountHosts    = "MUSTER_HOSTS"    // hosts, and the server's connection to them
	accountReplicas = "MUSTER_REPLICAS" // between replicas
	accountSys      = "MUSTER_SYS"
)

const (
	// maxSubs is the largest number of subscriptions of one connection in the hosts' account. A host needs three; a
	// replica needs one for each host whose telemetry is being watched.
	maxSubs = 512
	// A host that disappears without closing its connection is noticed after three missed pings.
	pingEvery   = 10 * time.Second
	missedPings = 2
	// connectionsPerCore limits the new connections per second and core. Others are closed at once and come again. How
	// many of the accepted ones go on is decided by admission.
	connectionsPerCore = 2000
	// tlsTimeout is how long a TLS handshake may take, in seconds. Most of that is admissionWait.
	tlsTimeout = 50
)

// NATSConfig returns the part of a NATS server's configuration that this platform requires: accounts, limits, and
// authorisation. The embedded server uses it; an external cluster must include it in its own configuration. It contains
// only public keys.
func NATSConfig(secret []byte) (string, error) {
	k, err := deriveKeys(secret)
	if err != nil {
		return "", err
	}
	return k.config()
}

func (k *keys) config() (string, error) {
	public := map[string]string{}
	for role, u := range k.users {
		var err error
		if public[role], err = u.PublicKey(); err != nil {
			return "", err
		}
	}
	issuer, err := k.issuer.PublicKey()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`accounts {
  %s { users: [ { nkey: %s } ] }
  %s { users: [ { nkey: %s } ], limits { max_subs: %d, max_payload: %d } }
  %s { users: [ { nkey: %s } ] }
  %s { users: [ { nkey: %s } ] }
}
system_account: %s
max_payload: %d
authorization {
  timeout: %d
  auth_callout { issuer: %s, account: %s, auth_users: [ %s ] }
}
`,
		accountAuth, public[roleAuth], accountHosts, public[roleHosts], maxSubs, agentapi.MaxMessage,
		accountReplicas, public[roleReplicas], accountSys, public[roleSys], accountSys, agentapi.MaxMessage, authTimeout,
		issuer, accountAuth,
		strings.Join([]string{public[roleAuth], public[roleHosts], public[roleReplicas], public[roleSys]}, ", ")), nil
}

// startServer starts the embedded NATS server and returns when it accepts connections.
func (l *Link) startServer(ctx context.Context) error {
	conf, err := l.keys.config()
	if err != nil {
		return err
	}
	o := &server.Options{
		NoSigs:            true,
		AlwaysEnableNonce: true,
		PingInterval:      pingEvery,
		MaxPingsOut:       missedPings,
	}
	// The limit of handshakes can be set only here; the certificate is set below.
	conf += fmt.Sprintf("tls { connection_rate_limit: %d, timeout: %d }\n", connectionsPerCore*runtime.GOMAXPROCS(0),
		tlsTimeout)
	if err := o.ProcessConfigString(conf); err != nil {
		return fmt.Errorf("NATS configuration: %w", err)
	}
	o.ServerName = l.replica.String()
	if o.Host, o.Port, err = hostPort(l.cfg.Listen); err != nil {
		return err
	}
	if o.TLSConfig, l.cfg.NATSCA, err = l.cfg.serverTLS(l.keys); err != nil {
		return err
	}
	l.admission.config(o.TLSConfig) // of TLS connections; those over WebSockets do not wait
	if l.cfg.WebSocketListen != "" {
		if o.Websocket.Host, o.Websocket.Port, err = hostPort(l.cfg.WebSocketListen); err != nil {
			return err
		}
		o.Websocket.TLSConfig = o.TLSConfig
	}
	if l.cfg.RouteListen != "" {
		if err := l.setRoutes(ctx, o); err != nil {
			return err
		}
	}
	ns, err := server.NewServer(o)
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	ns.SetLoggerV2(natsLog{l.log.With("part", "nats")}, false, false, false)
	ns.Start()
	l.ns = ns
	if !ns.ReadyForConnections(natsPatience) {
		return errors.New("the embedded NATS server did not start; its log says why")
	}
	return nil
}

// setRoutes connects this replica's server to those of the running replicas; the servers exchange the addresses of all
// others. Both sides of a route use certificates from the platform's CA.
func (l *Link) setRoutes(ctx context.Context, o *server.Options) error {
	var err error
	o.Cluster.Name = "muster"
	o.Cluster.NoAdvertise = true // hosts must use AgentURLs, not the addresses between replicas
	if o.Cluster.Host, o.Cluster.Port, err = hostPort(l.cfg.RouteListen); err != nil {
		return err
	}
	if u, err := url.Parse(l.cfg.RouteURL); err == nil && u.Host != "" {
		o.Cluster.Advertise = u.Host
	}
	names := l.cfg.names()
	for _, a := range []string{o.Cluster.Host, hostOf(o.Cluster.Advertise)} {
		if a != "" {
			names = append(names, a)
		}
	}
	if o.Cluster.TLSConfig, err = l.keys.serverTLS(names, l.cfg.Now); err != nil {
		return err
	}
	o.Cluster.TLSConfig.ClientAuth = tls.RequireAndVerifyClientCert
	o.Cluster.TLSTimeout = 5
	live, err := l.all.Live(ctx)
	if err != nil {
		return err
	}
	for _, r := range live {
		if u, err := url.Parse(r.RouteURL); err == nil && u.Host != "" && r.ID != l.replica {
			o.Routes = append(o.Routes, u)
		}
	}
	return nil
}

// ownTimeout is how long one of the platform's own connections may take. A server that starts while all hosts come back
// has little processor time for it.
const ownTimeout = 10 * time.Second

// connect opens one of the platform's own connections.
func (l *Link) connect(ctx context.Context, role string) (*nats.Conn, error) {
	kp := l.keys.users[role]
	public, err := kp.PublicKey()
	if err != nil {
		return nil, err
	}
	opts := []nats.Option{
		nats.Name("muster-" + role + "/" + l.cfg.Name),
		nats.Nkey(public, kp.Sign),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.Timeout(ownTimeout),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			l.log.Warn("NATS", "role", role, "subject", subject, "err", err)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				l.log.Warn("lost the connection to NATS", "role", role, "err", err)
			}
		}),
	}
	if l.ns != nil {
		return nats.Connect("nats://embedded", append(opts, nats.InProcessServer(l.ns))...)
	}
	if l.cfg.NATSCA != "" {
		opts = append(opts, nats.RootCAs(l.cfg.NATSCA))
	}
	return l.connectExternal(ctx, opts)
}

// natsPatience is how long a replica waits at its start for a NATS server: external ones may start at the same time,
// and the embedded one may have little processor time.
const natsPatience = 30 * time.Second

// connectExternal connects to an external NATS server. While none of them accepts connections it tries again, for
// natsPatience at most. A server that refuses this replica is an error at once.
func (l *Link) connectExternal(ctx context.Context, opts []nats.Option) (*nats.Conn, error) {
	for deadline := time.Now().Add(natsPatience); ; {
		nc, err := nats.Connect(l.cfg.NATSURL, opts...)
		if !errors.Is(err, nats.ErrNoServers) || time.Now().After(deadline) {
			return nc, err
		}
		l.log.Warn("no NATS server accepts connections yet: waiting")
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// AgentURLs returns the addresses to which hosts connect, and the CA in PEM with which they verify them ("" = their
// system's roots).
func (l *Link) AgentURLs() (urls []string, ca string, err error) {
	if l.ns == nil {
		ca, err = l.cfg.ca(l.cfg.CAFile)
		return l.cfg.AgentURLs, ca, err
	}
	if len(l.cfg.AgentURLs) > 0 {
		return l.cfg.AgentURLs, l.cfg.NATSCA, nil
	}
	h, _, _ := net.SplitHostPort(l.cfg.Listen) // valid: startServer has parsed it
	if h == "" || net.ParseIP(h).IsUnspecified() {
		h = l.cfg.Name
	}
	urls = []string{"tls://" + net.JoinHostPort(h, strconv.Itoa(l.ns.Addr().(*net.TCPAddr).Port))}
	if l.cfg.WebSocketListen != "" {
		if v, err := url.Parse(l.ns.WebsocketURL()); err == nil {
			urls = append(urls, "wss://"+net.JoinHostPort(h, v.Port()))
		}
	}
	return urls, l.cfg.NATSCA, nil
}

func hostPort(s string) (string, int, error) {
	h, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, fmt.Errorf("address %q: want host:port", s)
	}
	port, err := strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("address %q: bad port", s)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return h, port, nil
}

func hostOf(addr string) string {
	h, _, err := net.SplitHostPort(addr)
	if err != nil {
		return ""
	}
	return h
}

// natsLog writes the embedded server's log to slog.
type natsLog struct{ log *slog.Logger }

func (n natsLog) Noticef(f string, v ...any) { n.log.Debug(fmt.Sprintf(f, v...)) }
func (n natsLog) Warnf(f string, v ...any)   { n.log.Warn(fmt.Sprintf(f, v...)) }
func (n natsLog) Errorf(f string, v ...any)  { n.log.Error(fmt.Sprintf(f, v...)) }
func (n natsLog) Fatalf(f string, v ...any)  { n.log.Error(fmt.Sprintf(f, v...)) }
func (n natsLog) Debugf(f string, v ...any)  {}
func (n natsLog) Tracef(f string, v ...any)  {}
