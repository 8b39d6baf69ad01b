package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/httpbody"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/metrics"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/serve/api"
	"github.com/musterhq/muster/internal/serve/gateway"
	"github.com/musterhq/muster/internal/serve/releases"
	"github.com/musterhq/muster/static"
	"github.com/musterhq/muster/web"
)

const (
	// maxBody limits the body of every request, in bytes; most routes have lower limits.
	maxBody = 2 << 20
	// appBodyIdle is how long an upload into an app may pause.
	appBodyIdle = 2 * time.Minute
)

// handlers mounts pages and REST for people, enrolment and streams for hosts, and metrics for the operator of the
// platform.
func (s *Server) handlers(box *seal.Box, sshHostKeys []string) {
	assets := static.New()
	rest := api.New(api.Config{
		PublicURL: s.cfg.PublicURL,
		AgentURL:  s.cfg.AgentURL,
		AgentCA:   s.cfg.TLSCA,

		InstallCommand: s.cfg.installCommand(),

		Version:     s.cfg.Version,
		Currency:    s.cfg.Currency,
		Sandbox:     s.cfg.Sandbox(),
		Ready:       map[string]func(context.Context) error{"hosts": s.hostsReady, "nats": s.link.NATSReady},
		GatewayAddr: s.cfg.GatewayAddr,
		SSHHostKeys: sshHostKeys,
		Merchant:    s.cfg.merchant(),
	}, api.Deps{
		Nouns:    s.Nouns,
		Database: s.db,
		Dialer:   s.dialer,
		Bus:      s.link.Bus(),
		Shell:    s.shell,
		AppLink:  s.appLink,
		Box:      box,
		Assets:   assets,
		Log:      s.log,
	})
	terms, _ := legalText(s.cfg.TermsFile) // Validate has read them
	privacy, _ := legalText(s.cfg.PrivacyFile)
	pages := chi.NewRouter()
	web.New(web.Config{
		Nouns:         s.Nouns,
		Dialer:        s.dialer,
		Bus:           s.link.Bus(),
		SSHAddr:       s.cfg.GatewayAddr,
		AppLink:       s.appLink,
		Terminal:      s.terminal,
		EnrollCommand: rest.EnrollCommand,
		Ready: map[string]func(context.Context) error{
			"Database":          s.db.Ping,
			"Link to hosts":     s.hostsReady,
			"NATS":              s.link.NATSReady,
			"Database's schema": s.db.SchemaReady,
		},
		TermsText:   terms,
		PrivacyText: privacy,
		Merchant:    s.cfg.merchant(),
		Currency:    s.cfg.Currency,
		Sandbox:     s.cfg.Sandbox(),
		PublicURL:   s.cfg.PublicURL,
		Log:         s.log,
		Now:         time.Now,
		TrialAge:    time.Minute,
		Commands:    s.cfg.Commands,
		OpenAPI:     rest.OpenAPI,
	}).Routes(pages)

	people := http.NewServeMux()
	for _, p := range api.Paths() {
		people.Handle(p, rest)
	}
	people.Handle("/", pages)
	agent := s.cfg.agentReleases(s.log)
	people.Handle(releases.ScriptPath, agent)
	people.Handle(releases.ArchivesPath, agent)
	if s.sandbox != nil { // the payment page of the fake Stripe, among our own pages so that any browser reaches it
		people.Handle("/sandbox/", s.sandbox)
	}
	bounded := httpbody.Limit(compress(people), maxBody, httpbody.DefaultTimeout)
	apps := httpbody.LimitIdle(s.apps, appBodyIdle)
	var packs http.Handler // nil: another server has them
	if s.packs != nil {
		packs = httpbody.LimitIdle(s.packs, appBodyIdle)
	}
	s.people.handler = api.WarnUnlistedProxy(s.log, s.cfg.TrustedProxies,
		api.ClientAddress(s.cfg.TrustedProxies, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s.apps.Serves(r) {
				apps.ServeHTTP(w, r)
				return
			}
			if packs != nil && strings.HasPrefix(r.URL.Path, store.SignedPath) {
				packs.ServeHTTP(w, r)
				return
			}
			bounded.ServeHTTP(w, r)
		})))
	if strings.HasPrefix(s.cfg.PublicURL, "https://") && len(s.cfg.TrustedProxies) == 0 {
		s.log.Warn("people reach this server by https, so through a proxy, and MUSTER_TRUSTED_PROXIES lists none: " +
			"everybody behind it shares one limit of requests and sign-ins")
	}

	agents := http.NewServeMux()
	agents.Handle(agentapi.EnrollPath, s.link.EnrollHandler())
	agents.Handle(agentapi.EndpointsPath, s.link.EndpointsHandler())
	agents.Handle(agentapi.StreamPath, s.dialer)
	s.agents.handler = httpbody.Limit(agents, maxBody, httpbody.DefaultTimeout)

	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		poolStats(s.db.Pool), platformState(s.db.Pool, s.log))
	if s.relay != nil {
		reg.MustRegister(s.relay)
	}
	private := http.NewServeMux()
	private.Handle("/metrics", promhttp.HandlerFor(prometheus.Gatherers{reg, metrics.Gatherer()}, promhttp.HandlerOpts{}))
	private.HandleFunc("/debug/pprof/", pprof.Index)
	private.HandleFunc("/debug/pprof/profile", pprof.Profile)
	private.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s.private.handler = httpbody.Limit(private, maxBody, httpbody.DefaultTimeout)
}

// hostsReady reports why hosts cannot reach this replica although NATS works; it returns nil if they can.
func (s *Server) hostsReady(ctx context.Context) error {
	why := s.link.Unready(ctx)
	if len(why) == 0 {
		return nil
	}
	return errors.New(why[0])
}

// shell opens the gateway to a caller with an API token.
func (s *Server) shell(ctx context.Context, conn net.Conn, p account.Principal, cl id.Cluster, rank int) error {
	return s.gateway.ServeVisitor(ctx, conn, gateway.Visitor{
		Org:     p.Org,
		User:    p.User,
		Token:   p.Token,
		Session: p.Session,
		Address: p.Address,
		Cluster: cl,
		Rank:    rank,
		WorkDir: true,
	})
}

// terminal runs a shell for a terminal of a page.
func (s *Server) terminal(ctx context.Context, p account.Principal, cl id.Cluster, rank int,
	t dialback.Terminal) (code int, err error) {
	return s.gateway.Terminal(ctx, gateway.Visitor{
		Org:     p.Org,
		User:    p.User,
		Session: p.Session,
		Address: p.Address,
		Cluster: cl,
		Rank:    rank,
	}, t)
}

// appLink returns a link to an HTTP port for a member of the cluster's organisation.
func (s *Server) appLink(p account.Principal, cl id.Cluster, rank, port int) (string, error) {
	return s.apps.Link(gateway.Visitor{
		Org:     p.Org,
		User:    p.User,
		Token:   p.Token,
		Session: p.Session,
		Address: p.Address,
		Cluster: cl,
		Rank:    rank,
	}, port)
}

// serveShells accepts SSH connections. It closes them when the server stops: a shell's process must not outlive the
// connection that watches it.
func (s *Server) serveShells(context.Context) error {
	s.onClose(s.gateway.Close)
	if s.ssh == nil {
		return nil
	}
	s.onClose(func(context.Context) error { return closed(s.ssh.Close()) })
	go func() {
		if err := s.gateway.Serve(s.ssh); err != nil {
			s.log.Error("the SSH gateway ended", "err", err)
		}
	}()
	return nil
}

// closed returns the error of a Close that may have happened already.
func closed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
