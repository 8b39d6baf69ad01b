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
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/postpaid"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/data/bucket"
	"github.com/musterhq/muster/internal/data/sharedfs"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/erasure"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/fleet/template"
	"github.com/musterhq/muster/internal/heap"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/nouns"
	"github.com/musterhq/muster/internal/restore"
	"github.com/musterhq/muster/internal/serve/gateway"
	"github.com/musterhq/muster/internal/serve/hostlink"
	"github.com/musterhq/muster/internal/serve/relay"
	"github.com/musterhq/muster/internal/serve/worker"
	"github.com/musterhq/muster/internal/tracing"
)

// Server is one running replica of the control plane. It keeps nothing that another replica needs, so any number of
// them can run on one database.
type Server struct {
	cfg     Config
	log     *slog.Logger
	started time.Time

	nouns.Nouns
	db     *db.DB
	packs  http.Handler // of signed requests to the store; nil: the store answers them itself
	link   *hostlink.Link
	dialer *dialback.Dialer
	worker *worker.Worker
	relay  *relay.Relay // nil if this process is no relay

	sandbox                 http.Handler // pages of the fake Stripe; nil with a real one
	people, agents, private *listener
	ssh                     net.Listener // nil: no SSH here
	gateway                 *gateway.Gateway
	apps                    *gateway.Apps
	closers                 []func(context.Context) error // in order of starting
}

// Start wires a replica and starts it. If a step fails, Start stops the parts that it had started. cfg is valid.
func Start(ctx context.Context, cfg Config, log *slog.Logger) (*Server, error) {
	s := &Server{cfg: cfg, log: log, started: time.Now()}
	for _, step := range []func(context.Context) error{s.openTraces, s.openDatabase, s.openListeners, s.openRelay,
		s.openNouns, s.letHostsIn, s.serve, s.serveShells, s.startWorker} {
		if err := step(ctx); err != nil {
			down, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			return nil, errors.Join(err, s.Close(down))
		}
	}
	return s, nil
}

// Run serves as one replica of the control plane until the process gets SIGINT or SIGTERM, then stops in order within
// cfg.Drain. It writes the log to out. cfg is valid.
func Run(ctx context.Context, cfg Config, out io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := newLogger(out, cfg)
	heap.Tune()
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

func (s *Server) onClose(f func(context.Context) error) { s.closers = append(s.closers, f) }

// Close stops in the order opposite to starting: no new requests, answers under way finish, then the rest.
func (s *Server) Close(ctx context.Context) error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i](ctx))
	}
	s.closers = nil
	return errors.Join(errs...)
}

func (s *Server) openTraces(ctx context.Context) error {
	stop, err := tracing.Start(ctx, s.cfg.Version)
	if err != nil {
		return err
	}
	s.onClose(stop)
	return nil
}

func (s *Server) openDatabase(ctx context.Context) (err error) {
	if s.cfg.Migrate {
		if err := db.Migrate(ctx, string(s.cfg.DatabaseURL)); err != nil {
			return err
		}
	}
	s.db, err = db.Open(ctx, db.Config{URL: string(s.cfg.DatabaseURL), MaxConns: s.cfg.DBConns, Log: s.log})
	if err != nil {
		return err
	}
	s.onClose(func(context.Context) error { s.db.Close(); return nil })
	if err := s.db.SchemaReady(ctx); err != nil {
		return err
	}
	return restore.Check(ctx, s.db, s.cfg.LosslessFailover)
}

// openListeners takes the ports first, so that addresses with port 0 are known to all later steps.
func (s *Server) openListeners(context.Context) (err error) {
	if s.people, err = listen(s.cfg.Listen, "", ""); err != nil {
		return err
	}
	s.onClose(s.people.close)
	if s.agents, err = listen(s.cfg.AgentListen, s.cfg.TLSCert, s.cfg.TLSKey); err != nil {
		return err
	}
	s.onClose(s.agents.close)
	if s.private, err = listen(s.cfg.MetricsListen, "", ""); err != nil {
		return err
	}
	s.onClose(s.private.close)
	if s.cfg.GatewayListen != "" {
		if s.ssh, err = net.Listen("tcp", s.cfg.GatewayListen); err != nil {
			return fmt.Errorf("listen for SSH: %w", err)
		}
		s.onClose(func(context.Context) error { return closed(s.ssh.Close()) })
		if s.cfg.GatewayAddr == "" {
			s.cfg.GatewayAddr = s.ssh.Addr().String()
		}
	}
	if s.cfg.AppsDomain == localApps {
		_, port, err := net.SplitHostPort(s.people.addr())
		if err != nil {
			return err
		}
		s.cfg.AppsDomain = net.JoinHostPort("localhost", port)
	}
	if s.cfg.PublicURL == "" {
		s.cfg.PublicURL = "http://" + s.people.addr()
	}
	if s.cfg.AgentURL == "" {
		s.cfg.AgentURL = "https://" + s.agents.addr()
	}
	if s.cfg.StreamURL == "" && !s.cfg.shared() {
		s.cfg.StreamURL = s.cfg.AgentURL
	}
	return nil
}

func (s *Server) openNouns(ctx context.Context) (err error) {
	box, err := s.cfg.box()
	if err != nil {
		return err
	}
	raw, err := s.cfg.linkSecret()
	if err != nil {
		return err
	}
	s.link, err = s.openLink(ctx, raw)
	if err != nil {
		return err
	}
	relaySecret, err := s.cfg.relaySecret()
	if err != nil {
		return err
	}
	s.Accounts = account.New(s.db, account.Config{
		SignUpOff:      s.cfg.SignUpOff,
		SignUpsPerHour: s.cfg.SignUpsPerHour,
		PublicURL:      s.cfg.PublicURL,
		Post: func(ctx context.Context, tx *db.Tx, l account.Letter) error {
			return notify.Write(ctx, tx, l.User, l.To, l.Subject, l.Body)
		},
		TakenOver: func(ctx context.Context, tx *db.Tx, org id.Org) error {
			return erasure.Takeover{
				Clusters: s.Clusters, Hosts: s.Hosts, Cards: s.Payments.Cards, Payouts: s.Payouts,
			}.End(ctx, tx, org)
		},
		RightsLost: host.EndEnrollments,
		Box:        box,
	})
	s.Market, err = market.New(s.db, box, market.Config{
		Currency:       s.cfg.Currency,
		HostSharePPM:   s.cfg.HostSharePPM,
		AllowSimulated: s.cfg.AllowSimulated,
		RelistLock:     s.cfg.RelistLock,
		Starts:         s.cfg.startRules(),
		Bus:            s.link.Bus(),
	})
	if err != nil {
		return err
	}
	s.Hosts = host.New(s.db, s.link.Bus())
	if err = s.openStore(ctx, box, raw); err != nil {
		return err
	}
	s.Buckets = bucket.New(s.db, bucket.Config{Box: box, AnyAddress: s.cfg.BucketAnyAddress,
		Bus: s.link.Bus(), Log: s.log})
	s.Shared = sharedfs.New(s.db, s.link.Bus())
	s.Clusters = cluster.New(s.db, s.Market, s.link.Bus(), cluster.Config{
		Currency:        s.cfg.Currency,
		Box:             box,
		Log:             s.log,
		Starts:          s.cfg.startRules(),
		KnownRegistries: s.cfg.KnownRegistries,
		Relays:          s.cfg.Relays,
		RelaySecret:     relaySecret,
		MaxState:        s.link.StateLimit(),
	})
	s.dialer = dialback.New(s.db, s.link.Bus(), dialback.Config{StreamURL: s.cfg.StreamURL, Log: s.log})
	if err = s.openPayments(ctx); err != nil {
		return err
	}
	if s.Payouts, err = payout.New(s.db, s.Outbox, s.Events, s.cfg.payouts(), s.log); err != nil {
		return err
	}
	if s.Postpaid, err = postpaid.New(s.db, s.Outbox, s.Payments.Invoices, postpaid.Config{Currency: s.cfg.Currency},
		s.log); err != nil {
		return err
	}
	s.Templates = template.New(s.db, s.cfg.DemoImage)
	s.Bonds = bond.New(s.db, s.cfg.Currency)
	s.Budgets = budget.New(s.db, s.cfg.Currency)
	s.Leases = metering.NewLeases(s.db)
	s.Statements = statement.New(s.db, s.cfg.Currency, s.cfg.merchant())
	s.Notices = notify.NewNotices(s.db)
	s.Webhooks = notify.NewWebhooks(s.db, box, false)
	s.Erasure = erasure.New(s.db, s.Accounts.Passwords)
	keys, err := s.Clusters.Ingress.SSHHostKeys(ctx)
	if err != nil {
		return err
	}
	s.onClose(func(ctx context.Context) error {
		if s.apps == nil {
			return nil
		}
		return s.apps.Close(ctx)
	})
	s.gateway = gateway.New(gateway.Config{
		Accounts: s.Accounts,
		Clusters: s.Clusters,
		Dialer:   s.dialer,
		HostKeys: keys,
		Log:      s.log,
	})
	s.apps = gateway.NewApps(s.gateway, gateway.AppsConfig{
		Domain:  s.cfg.AppsDomain,
		Secure:  strings.HasPrefix(s.cfg.PublicURL, "https://"),
		Box:     box,
		StillIn: s.Accounts.Credentials.StillIn,
		Now:     time.Now,
		Log:     s.log,
	})
	s.handlers(box, gateway.PublicKeys(keys))
	return nil
}

// openLink opens NATS and the bus. Hosts are refused until letHostsIn.
func (s *Server) openLink(ctx context.Context, secret []byte) (*hostlink.Link, error) {
	ca := ""
	if s.cfg.TLSCA != "" {
		b, err := os.ReadFile(s.cfg.TLSCA)
		if err != nil {
			return nil, fmt.Errorf("read MUSTER_TLS_CA: %w", err)
		}
		ca = string(b)
	}
	cfg := hostlink.Config{
		Secret: secret, Name: s.cfg.replica(), Listen: s.cfg.NATSListen, NATSURL: s.cfg.NATSURL,
		RouteListen: s.cfg.NATSRouteListen, RouteURL: s.cfg.NATSRouteURL,
		CertFile: s.cfg.TLSCert, KeyFile: s.cfg.TLSKey, CAFile: s.cfg.TLSCA,
		StreamURL: s.cfg.StreamURL, StreamCA: ca, Origins: []string{origin(s.cfg.AgentURL)},
		AllowSimulated: s.cfg.AllowSimulated, Relays: s.cfg.Relays, Log: s.log,
		ReportContext:  func(ctx context.Context) context.Context { return db.For(ctx, db.Reports) },
		ConnectContext: func(ctx context.Context) context.Context { return db.For(ctx, db.Connections) },
	}
	cfg.AgentURLs = s.cfg.NATSPublic
	if cfg.NATSURL != "" { // its servers have certificates of the same CA, as hosts verify it
		cfg.NATSCA = s.cfg.TLSCA
	}
	l, err := hostlink.Open(ctx, host.NewReplicas(s.db), cfg)
	if err != nil {
		return nil, err
	}
	s.onClose(l.Stop)
	return l, nil
}

// letHostsIn lets hosts connect.
func (s *Server) letHostsIn(context.Context) error {
	return s.link.Start(hostlink.Domain{
		Agents:   host.NewAgents(s.db, s.link.Bus()),
		Clusters: s.Clusters.Hosts,
		Metering: metering.NewCollector(s.db),
		Market:   s.Market,
		Volumes:  s.Volumes.Hosts,
		Shared:   s.Shared,
		Quiet:    cluster.NewQuietReports(s.Clusters.Hosts),
	})
}

func (s *Server) serve(context.Context) error {
	for _, l := range []*listener{s.private, s.agents, s.people} {
		l.serve(s.log)
	}
	return nil
}

func (s *Server) startWorker(ctx context.Context) error {
	mailer, err := s.cfg.mailer(s.log)
	if err != nil {
		return err
	}
	box, err := s.cfg.box()
	if err != nil {
		return err
	}
	jobs := worker.Jobs(worker.Platform{
		Nouns:       s.Nouns,
		DB:          s.db,
		Dialer:      s.dialer,
		Post:        &notify.Post{DB: s.db, Mailer: mailer, PublicURL: s.cfg.PublicURL, Log: s.log},
		Sender:      &notify.Sender{DB: s.db, Box: box, Log: s.log},
		Holdback:    s.cfg.Holdback,
		NewHoldback: s.cfg.newHoldback(),
		Currency:    s.cfg.Currency,
		Merchant:    s.cfg.merchant(),
	})
	s.worker = worker.New(s.log, jobs...)
	if err := s.worker.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	s.onClose(s.worker.Stop)
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
