// Package api is the REST face of Muster: it translates between HTTP and the nouns, and holds no rules of its own.
//
// What always holds:
//
//   - Every route says who may call it, in routes.go; a test walks the router and fails on one that does not.
//   - Another org's object is not found; a missing permission inside one's own org is forbidden.
//   - Every failure is a problem document with one of the contract's codes. It never repeats a value that was sent, and
//     the answer to an internal failure contains only the request's name in our log.
//   - Every POST takes an Idempotency-Key, which is taken inside the transaction of the act.
//   - Unknown fields are refused and bodies are bounded.
package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/fleet/nodelog"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/metrics"
	"github.com/musterhq/muster/internal/nouns"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/static"
)

// Config configures the API.
type Config struct {
	PublicURL string // where people reach the platform, https://muster.example; for links and the enrol command
	AgentURL  string // where hosts enrol
	AgentCA   string // PEM file, on the host, that the enrol command names; "" = the system's roots
	// InstallCommand returns the command that installs the agent from this platform and enrols it; nil: the platform
	// serves no agent, and the command enrols one that is installed.
	InstallCommand func(token string) string

	Version  string // of this server
	Currency string // "USD"
	Sandbox  bool   // no real money moves

	Merchant statement.Party // of record, on invoices

	// GatewayAddr is host:port of the SSH gateway as people reach it, "" when there is none; SSHHostKeys are its public
	// keys, "ssh-ed25519 AAAA…".
	GatewayAddr string
	SSHHostKeys []string

	// Requests per minute and replica; 0 = the default, negative = no limit.
	AddressPerMinute int // default 3000
	CallerPerMinute  int // default 1200

	// Ready are further conditions of readiness, by name: "hosts" for whether hosts can reach this replica.
	Ready map[string]func(context.Context) error
}

// Database is what readiness needs of the database.
type Database interface {
	Ping(context.Context) error        // PostgreSQL answers
	SchemaReady(context.Context) error // its schema fits this program
}

// Deps are the nouns behind the face, and what else it needs.
type Deps struct {
	nouns.Nouns
	Database Database
	Dialer   *dialback.Dialer // reads logs from hosts; nil: only kept logs are shown
	Bus      *bus.Bus         // may be nil: waits then look every second
	Shell    Shell            // nil: this server opens no shells
	AppLink  AppLink          // nil: ports are not shown to browsers
	Box      *seal.Box
	Assets   *static.Assets
	Log      *slog.Logger
}

// Shell speaks SSH with the principal, for a rank of a cluster of its org, until the connection ends.
type Shell func(ctx context.Context, conn net.Conn, p account.Principal, cl id.Cluster, rank int) error

// AppLink returns a link that shows an HTTP port of a rank to anyone who opens it.
type AppLink func(p account.Principal, cl id.Cluster, rank, port int) (string, error)

// API serves the REST interface. New returns one.
type API struct {
	// Handler serves Base, the reference, health and Stripe's webhook. Mount it under Paths, or at the root before the
	// pages.
	http.Handler

	Deps
	cfg  Config
	logs *nodelog.Reader

	table    *table
	rendered rendered
}

// New builds the router; it starts nothing.
func New(cfg Config, d Deps) *API {
	if cfg.AddressPerMinute == 0 {
		cfg.AddressPerMinute = 3000
	}
	if cfg.CallerPerMinute == 0 {
		cfg.CallerPerMinute = 1200
	}
	if cfg.Merchant.Address == nil {
		cfg.Merchant.Address = []string{} // a list in answers, never null
	}
	if d.Log == nil {
		d.Log = slog.Default()
	}
	if d.Assets == nil {
		d.Assets = static.New()
	}
	a := &API{Deps: d, cfg: cfg}
	if d.Clusters != nil { // else only the document is made
		a.logs = nodelog.New(d.Clusters.Views, nodelog.Dialled(d.Dialer), d.Bus)
	}
	a.build()
	a.rendered = a.render()
	return a
}

// Paths are the patterns of http.ServeMux under which the API is to be mounted.
func Paths() []string { return []string{"/api/", "/healthz", "/readyz", "/stripe/"} }

func (a *API) build() {
	r := chi.NewRouter()
	a.Handler = r
	r.Use(metrics.HTTP("api", a.Log), a.envelope, middleware.GetHead)
	r.NotFound(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, newProblem(fault.NotFound, "page not found; the reference is at "+docsPath))
	})
	r.MethodNotAllowed(func(w http.ResponseWriter, _ *http.Request) {
		p := newProblem(fault.NotFound, "this path does not take that method; the reference is at "+docsPath)
		p.Status, p.Title = http.StatusMethodNotAllowed, "The path does not take this method"
		writeProblem(w, p)
	})
	t := &table{
		api: a, rule: map[string]access{}, answers: map[string]reflect.Type{}, nouns: map[string]string{},
	}
	a.table = t
	t.chi = r
	a.outside(t)
	r.Group(func(r chi.Router) {
		r.Use(a.admit)
		t.chi = r
		t.huma = humachi.New(r, humaConfig(a.cfg))
		t.huma.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) { next(&contractContext{humaContext: ctx}) },
			a.knownQuery)
		a.inside(t)
	})
	polish(t.huma.OpenAPI())
	a.addSamples(t.huma.OpenAPI())
}

// healthz reports only that the process answers, so that an outage of the database does not get every replica
// restarted.
func (a *API) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "version": a.cfg.Version})
}

const readyWithin = 3 * time.Second

// readyz reports whether this replica should receive requests, and what is missing if not: PostgreSQL must answer, its
// schema must be compatible, and hosts must be able to reach this replica.
func (a *API) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	checks := map[string]string{}
	ready := true
	note := func(name string, err error) {
		checks[name] = "ok"
		if err != nil {
			checks[name] = err.Error()
			ready = false
		}
	}
	if err := a.Database.Ping(ctx); err != nil {
		note("postgres", errUnreachable)
	} else {
		note("postgres", nil)
		note("schema", a.Database.SchemaReady(ctx))
	}
	for name, check := range a.cfg.Ready {
		note(name, check(ctx))
	}
	status := http.StatusOK
	if !ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, map[string]any{"ready": ready, "checks": checks})
}

type textError string

func (e textError) Error() string { return string(e) }

// errUnreachable stands for pgx's error, which names the server's address and user.
const errUnreachable = textError("PostgreSQL cannot be reached")

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
