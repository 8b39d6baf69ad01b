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
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/httpbody"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/metrics"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/serve/api"
	"github.com/musterhq/muster/internal/serve/gateway"
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
func (a *Server) handlers(box *seal.Box, sshHostKeys []string) {
	assets := static.New()
	rest := api.New(api.Config{
		PublicURL:   a.cfg.PublicURL,
		AgentURL:    a.cfg.AgentURL,
		AgentCA:     a.cfg.TLSCA,
		Version:     a.cfg.Version,
		Currency:    a.cfg.Currency,
		Sandbox:     a.cfg.Sandbox(),
		Ready:       map[string]func(context.Context) error{"hosts": a.hostsReady},
		GatewayAddr: a.cfg.GatewayAddr,
		SSHHostKeys: sshHostKeys,
		Holdback:    a.cfg.Holdback,
		Merchant:    a.cfg.merchant(),
	}, api.Deps{
		DB:         a.db,
		Accounts:   a.accounts,
		Market:     a.market,
		Hosts:      a.hosts,
		Clusters:   a.clusters,
		Payments:   a.payments,
		Payouts:    a.payouts,
		Postpaid:   a.postpaid,
		Bonds:      bond.New(a.db, a.cfg.Currency),
		Budgets:    budget.New(a.db, a.cfg.Currency),
		Leases:     metering.NewLeases(a.db),
		Statements: statement.New(a.db, a.cfg.Currency, a.cfg.merchant()),
		Dialer:     a.dialer,
		Bus:        a.link.Bus(),
		Shell:      a.shell,
		AppLink:    a.appLink,
		Box:        box,
		Assets:     assets,
		Log:        a.log,
	})
	pages := chi.NewRouter()
	web.New(web.Config{
		DB:            a.db,
		Accounts:      a.accounts,
		Market:        a.market,
		Hosts:         a.hosts,
		Clusters:      a.clusters,
		Payments:      a.payments,
		Payouts:       a.payouts,
		Postpaid:      a.postpaid,
		Bonds:         bond.New(a.db, a.cfg.Currency),
		Budgets:       budget.New(a.db, a.cfg.Currency),
		Leases:        metering.NewLeases(a.db),
		Statements:    statement.New(a.db, a.cfg.Currency, a.cfg.merchant()),
		Dialer:        a.dialer,
		Bus:           a.link.Bus(),
		SSHAddr:       a.cfg.GatewayAddr,
		AppLink:       a.appLink,
		EnrollCommand: rest.EnrollCommand,
		Holdback:      a.cfg.Holdback,
		Merchant:      a.cfg.merchant(),
		Currency:      a.cfg.Currency,
		Sandbox:       a.cfg.Sandbox(),
		PublicURL:     a.cfg.PublicURL,
		Log:           a.log,
		Now:           time.Now,
		TrialAge:      time.Minute,
	}).Routes(pages)

	people := http.NewServeMux()
	for _, p := range api.Paths() {
		people.Handle(p, rest)
	}
	people.Handle("/", pages)
	if a.sandbox != nil { // the payment page of the fake Stripe, among our own pages so that any browser reaches it
		people.Handle("/sandbox/", a.sandbox)
	}
	bounded, apps := httpbody.Limit(people, maxBody, httpbody.DefaultTimeout), httpbody.LimitIdle(a.apps, appBodyIdle)
	a.people.handler = api.WarnUnlistedProxy(a.log, a.cfg.TrustedProxies,
		api.ClientAddress(a.cfg.TrustedProxies, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if a.apps.Serves(r) {
				apps.ServeHTTP(w, r)
				return
			}
			bounded.ServeHTTP(w, r)
		})))
	if strings.HasPrefix(a.cfg.PublicURL, "https://") && len(a.cfg.TrustedProxies) == 0 {
		a.log.Warn("people reach this server by https, so through a proxy, and MUSTER_TRUSTED_PROXIES lists none: " +
			"everybody behind it shares one limit of requests and sign-ins")
	}

	agents := http.NewServeMux()
	agents.Handle(agentapi.EnrollPath, a.link.EnrollHandler())
	agents.Handle(agentapi.EndpointsPath, a.link.EndpointsHandler())
	agents.Handle(agentapi.StreamPath, a.dialer)
	a.agents.handler = httpbody.Limit(agents, maxBody, httpbody.DefaultTimeout)

	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		poolStats(a.db.Pool), platformState(a.db.Pool, a.log))
	if a.relay != nil {
		reg.MustRegister(a.relay)
	}
	private := http.NewServeMux()
	private.Handle("/metrics", promhttp.HandlerFor(prometheus.Gatherers{reg, metrics.Gatherer()}, promhttp.HandlerOpts{}))
	private.HandleFunc("/debug/pprof/", pprof.Index)
	private.HandleFunc("/debug/pprof/profile", pprof.Profile)
	private.HandleFunc("/debug/pprof/trace", pprof.Trace)
	a.private.handler = httpbody.Limit(private, maxBody, httpbody.DefaultTimeout)
}

// hostsReady reports why hosts cannot reach this replica; it returns nothing if they can.
func (a *Server) hostsReady(ctx context.Context) error {
	why := a.link.Unready(ctx)
	if len(why) == 0 {
		return nil
	}
	return errors.New(why[0])
}

// shell opens the gateway to a caller with an API token.
func (a *Server) shell(ctx context.Context, conn net.Conn, p account.Principal, cl id.Cluster, rank int) error {
	return a.gateway.ServeVisitor(ctx, conn, gateway.Visitor{
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

// appLink returns a link to an HTTP port for a member of the cluster's organisation.
func (a *Server) appLink(p account.Principal, cl id.Cluster, rank, port int) (string, error) {
	return a.apps.Link(gateway.Visitor{
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
func (a *Server) serveShells(context.Context) error {
	a.onClose(a.gateway.Close)
	if a.ssh == nil {
		return nil
	}
	a.onClose(func(context.Context) error { return closed(a.ssh.Close()) })
	go func() {
		if err := a.gateway.Serve(a.ssh); err != nil {
			a.log.Error("the SSH gateway ended", "err", err)
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
