package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/postpaid"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/restore"
	"github.com/musterhq/muster/internal/serve/gateway"
	"github.com/musterhq/muster/internal/serve/hostlink"
	"github.com/musterhq/muster/internal/serve/relay"
	"github.com/musterhq/muster/internal/serve/worker"
)

// Server is one running replica of the control plane. It keeps nothing that another replica needs, so any number of
// them can run on one database.
type Server struct {
	cfg     Config
	log     *slog.Logger
	started time.Time

	db       *db.DB
	accounts *account.Accounts
	market   *market.Market
	hosts    *host.Hosts
	clusters *cluster.Clusters
	payments *payment.Payments
	payouts  *payout.Payouts
	postpaid *postpaid.Postpaid
	link     *hostlink.Link
	dialer   *dialback.Dialer
	worker   *worker.Worker
	relay    *relay.Relay // nil if this process is no relay

	sandbox                 http.Handler // pages of the fake Stripe; nil with a real one
	people, agents, private *listener
	ssh                     net.Listener // nil: no SSH here
	gateway                 *gateway.Gateway
	apps                    *gateway.Apps
	closers                 []func(context.Context) error // in order of starting
}

// Start wires a replica and starts it. If a step fails, Start stops the parts that it had started. cfg is valid.
func Start(ctx context.Context, cfg Config, log *slog.Logger) (*Server, error) {
	a := &Server{cfg: cfg, log: log, started: time.Now()}
	for _, step := range []func(context.Context) error{a.openDatabase, a.openListeners, a.openRelay, a.openNouns,
		a.letHostsIn, a.serve, a.serveShells, a.startWorker} {
		if err := step(ctx); err != nil {
			down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			return nil, errors.Join(err, a.Close(down))
		}
	}
	return a, nil
}

// Run serves as one replica of the control plane until the process gets SIGINT or SIGTERM, then stops in order within
// cfg.Drain. It writes the log to out. cfg is valid.
func Run(ctx context.Context, cfg Config, out io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := newLogger(out, cfg)
	s, err := Start(ctx, cfg, log)
	if err != nil {
		return err
	}
	log.Info("serving", "version", cfg.Version, "url", s.cfg.PublicURL, "hosts", s.cfg.AgentURL, "sandbox", cfg.Sandbox())
	<-ctx.Done()
	stop() // a second signal ends the process at once
	log.Info("stopping", "limit", cfg.Drain)
	down, cancel := context.WithTimeout(context.Background(), cfg.Drain)
	defer cancel()
	return s.Close(down)
}

func newLogger(w io.Writer, cfg Config) *slog.Logger {
	opts := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

func (a *Server) onClose(f func(context.Context) error) { a.closers = append(a.closers, f) }

// Close stops in the order opposite to starting: no new requests, answers under way finish, then the rest.
func (a *Server) Close(ctx context.Context) error {
	var errs []error
	for i := len(a.closers) - 1; i >= 0; i-- {
		errs = append(errs, a.closers[i](ctx))
	}
	a.closers = nil
	return errors.Join(errs...)
}

func (a *Server) openDatabase(ctx context.Context) (err error) {
	if a.cfg.Migrate {
		if err := db.Migrate(ctx, string(a.cfg.DatabaseURL)); err != nil {
			return err
		}
	}
	a.db, err = db.Open(ctx, db.Config{URL: string(a.cfg.DatabaseURL), MaxConns: a.cfg.DBConns})
	if err != nil {
		return err
	}
	a.onClose(func(context.Context) error { a.db.Close(); return nil })
	if err := a.db.SchemaReady(ctx); err != nil {
		return err
	}
	return restore.Check(ctx, a.db, a.cfg.LosslessFailover)
}

// openListeners takes the ports first, so that addresses with port 0 are known to all later steps.
func (a *Server) openListeners(context.Context) (err error) {
	if a.people, err = listen(a.cfg.Listen, "", ""); err != nil {
		return err
	}
	a.onClose(a.people.close)
	if a.agents, err = listen(a.cfg.AgentListen, a.cfg.TLSCert, a.cfg.TLSKey); err != nil {
		return err
	}
	a.onClose(a.agents.close)
	if a.private, err = listen(a.cfg.MetricsListen, "", ""); err != nil {
		return err
	}
	a.onClose(a.private.close)
	if a.cfg.GatewayListen != "" {
		if a.ssh, err = net.Listen("tcp", a.cfg.GatewayListen); err != nil {
			return fmt.Errorf("listen for SSH: %w", err)
		}
		a.onClose(func(context.Context) error { return closed(a.ssh.Close()) })
		if a.cfg.GatewayAddr == "" {
			a.cfg.GatewayAddr = a.ssh.Addr().String()
		}
	}
	if a.cfg.AppsDomain == localApps {
		_, port, err := net.SplitHostPort(a.people.addr())
		if err != nil {
			return err
		}
		a.cfg.AppsDomain = net.JoinHostPort("localhost", port)
	}
	if a.cfg.PublicURL == "" {
		a.cfg.PublicURL = "http://" + a.people.addr()
	}
	if a.cfg.AgentURL == "" {
		a.cfg.AgentURL = "https://" + a.agents.addr()
	}
	if a.cfg.StreamURL == "" && !a.cfg.shared() {
		a.cfg.StreamURL = a.cfg.AgentURL
	}
	return nil
}

func (a *Server) openNouns(ctx context.Context) (err error) {
	box, err := a.cfg.box()
	if err != nil {
		return err
	}
	raw, err := a.cfg.linkSecret()
	if err != nil {
		return err
	}
	a.link, err = a.openLink(ctx, raw)
	if err != nil {
		return err
	}
	relaySecret, err := a.cfg.relaySecret()
	if err != nil {
		return err
	}
	a.accounts = account.New(a.db, account.Config{
		SignUpOff:      a.cfg.SignUpOff,
		SignUpsPerHour: a.cfg.SignUpsPerHour,
		PublicURL:      a.cfg.PublicURL,
		Post: func(ctx context.Context, tx *db.Tx, l account.Letter) error {
			return notify.Write(ctx, tx, l.User, l.To, l.Subject, l.Body)
		},
	})
	a.market, err = market.New(a.db, box, market.Config{
		Currency:       a.cfg.Currency,
		HostSharePPM:   a.cfg.HostSharePPM,
		AllowSimulated: a.cfg.AllowSimulated,
		RelistLock:     a.cfg.RelistLock,
		Bus:            a.link.Bus(),
	})
	if err != nil {
		return err
	}
	a.hosts = host.New(a.db, a.link.Bus())
	a.clusters = cluster.New(a.db, a.market, a.link.Bus(), cluster.Config{
		Currency:     a.cfg.Currency,
		Box:          box,
		Log:          a.log,
		StartReserve: fairness.StartReserve,
		Relays:       a.cfg.Relays,
		RelaySecret:  relaySecret,
	})
	a.dialer = dialback.New(a.db, a.link.Bus(), dialback.Config{StreamURL: a.cfg.StreamURL, Log: a.log})
	if a.payments, err = a.openPayments(ctx); err != nil {
		return err
	}
	if a.payouts, err = payout.New(a.db, a.payments, a.cfg.payouts(), a.log); err != nil {
		return err
	}
	if a.postpaid, err = postpaid.New(a.db, a.payments, postpaid.Config{Currency: a.cfg.Currency}, a.log); err != nil {
		return err
	}
	keys, err := a.clusters.SSHHostKeys(ctx)
	if err != nil {
		return err
	}
	a.onClose(func(ctx context.Context) error {
		if a.apps == nil {
			return nil
		}
		return a.apps.Close(ctx)
	})
	a.gateway = gateway.New(gateway.Config{
		Accounts: a.accounts,
		Clusters: a.clusters,
		Dialer:   a.dialer,
		HostKeys: keys,
		Log:      a.log,
	})
	a.apps = gateway.NewApps(a.gateway, gateway.AppsConfig{
		Domain:  a.cfg.AppsDomain,
		Secure:  strings.HasPrefix(a.cfg.PublicURL, "https://"),
		Box:     box,
		StillIn: a.accounts.StillIn,
		Now:     time.Now,
		Log:     a.log,
	})
	a.handlers(box, gateway.PublicKeys(keys))
	return nil
}

// openLink opens NATS and the bus. Hosts are refused until letHostsIn.
func (a *Server) openLink(ctx context.Context, secret []byte) (*hostlink.Link, error) {
	ca := ""
	if a.cfg.TLSCA != "" {
		b, err := os.ReadFile(a.cfg.TLSCA)
		if err != nil {
			return nil, fmt.Errorf("read MUSTER_TLS_CA: %w", err)
		}
		ca = string(b)
	}
	cfg := hostlink.Config{
		Secret: secret, Name: a.cfg.replica(), Listen: a.cfg.NATSListen, NATSURL: a.cfg.NATSURL,
		RouteListen: a.cfg.NATSRouteListen, RouteURL: a.cfg.NATSRouteURL,
		CertFile: a.cfg.TLSCert, KeyFile: a.cfg.TLSKey, CAFile: a.cfg.TLSCA,
		StreamURL: a.cfg.StreamURL, StreamCA: ca, Origins: []string{origin(a.cfg.AgentURL)},
		AllowSimulated: a.cfg.AllowSimulated, Relays: a.cfg.Relays, Log: a.log,
	}
	if a.cfg.NATSPublic != "" {
		cfg.AgentURLs = []string{a.cfg.NATSPublic}
	}
	l, err := hostlink.Open(ctx, host.NewReplicas(a.db), cfg)
	if err != nil {
		return nil, err
	}
	a.onClose(l.Stop)
	return l, nil
}

// letHostsIn lets hosts connect.
func (a *Server) letHostsIn(context.Context) error {
	return a.link.Start(hostlink.Domain{
		Agents:   host.NewAgents(a.db, a.link.Bus()),
		Clusters: a.clusters,
		Metering: metering.NewCollector(a.db),
		Market:   a.market,
	})
}

func (a *Server) serve(context.Context) error {
	for _, l := range []*listener{a.private, a.agents, a.people} {
		l.serve(a.log)
	}
	return nil
}

func (a *Server) startWorker(ctx context.Context) error {
	mailer, err := a.cfg.mailer(a.log)
	if err != nil {
		return err
	}
	jobs := worker.Jobs(worker.Platform{
		DB:          a.db,
		Accounts:    a.accounts,
		Market:      a.market,
		Clusters:    a.clusters,
		Payments:    a.payments,
		Payouts:     a.payouts,
		Postpaid:    a.postpaid,
		Dialer:      a.dialer,
		Post:        &notify.Post{DB: a.db, Mailer: mailer, PublicURL: a.cfg.PublicURL, Log: a.log},
		Holdback:    a.cfg.Holdback,
		NewHoldback: a.cfg.newHoldback(),
		Currency:    a.cfg.Currency,
		Merchant:    a.cfg.merchant(),
	})
	a.worker = worker.New(a.log, jobs...)
	if err := a.worker.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	a.onClose(a.worker.Stop)
	return nil
}

// origin returns scheme://host[:port] of an address.
func origin(u string) string {
	p, err := url.Parse(u)
	if err != nil {
		return u
	}
	return p.Scheme + "://" + p.Host
}
