package gateway

import (
	"context"
	"errors"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/seal"
)

// AppsConfig configures Apps.
type AppsConfig struct {
	// Domain is the domain under which each HTTP port has its own name, with a port number if it is not the scheme's
	// default: "apps.muster.example", "localhost:8080". DNS must resolve every name under it to this server. "" disables
	// apps.
	Domain string
	Secure bool // https
	Box    *seal.Box
	// StillIn reports whether the credential with which an app was opened is still valid. nil = not checked.
	StillIn func(context.Context, account.Credential) (bool, error)
	Now     func() time.Time
	Log     *slog.Logger
}

// Apps serves HTTP ports of running ranks, including WebSockets, to browsers.
//
// Invariants: An app is accessible only to those who opened a link that a member of the cluster's organisation created,
// and only while the token that created the link is valid. The app never receives the gateway's cookie. Each app has
// its own origin; requests from pages of another cluster's app or another site are rejected even if they carry the
// cookie (sameOrigin).
type Apps struct {
	cfg     AppsConfig
	gateway *Gateway
	proxy   *httputil.ReverseProxy
	nodes   nodes
	holders holders
}

// NewApps returns the Apps of a gateway.
func NewApps(g *Gateway, cfg AppsConfig) *Apps {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &Apps{cfg: cfg, gateway: g, holders: holders{answers: map[account.Credential]answer{}}}
	p.nodes = nodes{open: p.openNode, held: map[nodeKey]*held{}}
	p.proxy = &httputil.ReverseProxy{
		Rewrite: p.rewrite,
		Transport: &http.Transport{
			DialContext: p.dial, MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
		},
		FlushInterval: -1, // flush immediately, for event streams such as a notebook kernel's
		ErrorHandler:  p.failed,
		ErrorLog:      slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	return p
}

// Serves reports whether the request is for an app.
func (p *Apps) Serves(r *http.Request) bool {
	_, ok := p.label(r)
	return ok
}

func (p *Apps) label(r *http.Request) (string, bool) {
	if p.cfg.Domain == "" {
		return "", false
	}
	label, ok := strings.CutSuffix(strings.ToLower(r.Host), "."+strings.ToLower(p.cfg.Domain))
	return label, ok && label != "" && !strings.Contains(label, ".")
}

type visitorCtx struct{}

// ServeHTTP serves the requests for which Serves returns true.
func (p *Apps) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	label, _ := p.label(r)
	app, err := parseLabel(label)
	if err != nil {
		p.respond(w, http.StatusNotFound, "There is no such app.")
		return
	}
	label = app.label()
	if r.URL.Path == openPath {
		p.let(w, r, app)
		return
	}
	who, ok := p.known(r, label)
	if !ok {
		p.respond(w, http.StatusForbidden, "Open this app from its cluster's page, or with the link that muster cluster "+
			"open prints.")
		return
	}
	if !p.sameOrigin(r, app) {
		p.respond(w, http.StatusForbidden, "A page of another app or site asked for this: that is refused. Open this app "+
			"in a tab of its own.")
		return
	}
	if !p.stillIn(w, r, who) {
		return
	}
	leave, ok := p.gateway.share(who.Org)
	if !ok {
		p.respond(w, http.StatusTooManyRequests, "Your organisation has too many connections open: close some and try again.")
		return
	}
	defer leave()
	v := who.visitor(r, app)
	ctx, cancel := p.gateway.whileIn(r.Context(), v) // a WebSocket may stay open for days
	defer cancel()
	p.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, visitorCtx{}, v)))
}

// let exchanges the pass in a link for a cookie, and redirects so that the pass does not stay in the browser's history.
func (p *Apps) let(w http.ResponseWriter, r *http.Request, app App) {
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	who, ok := p.verify(r.URL.Query().Get("pass"), passLink, app.label())
	if !ok {
		p.respond(w, http.StatusForbidden, "This link has expired. Make a new one on the cluster's page.")
		return
	}
	if !p.stillIn(w, r, who) {
		return
	}
	v := who.visitor(r, app)
	if err := p.gateway.record(r.Context(), v, "cluster.app", app.Rank, map[string]any{"port": app.Port}); err != nil {
		p.cfg.Log.Error("an app cannot be opened", "err", err)
		p.respond(w, http.StatusInternalServerError, "Something went wrong on our side.")
		return
	}
	http.SetCookie(w, p.cookie(who))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// rewrite forwards the request to the app as the browser sent it, byte for byte: path, query and cookies, whatever Go
// thinks of their syntax. It keeps the Host header, because apps compare it with a WebSocket's Origin, and removes the
// gateway's cookie.
func (p *Apps) rewrite(r *httputil.ProxyRequest) {
	label, _ := p.label(r.In)
	r.Out.URL.Scheme, r.Out.URL.Host = "http", label+":80"
	path, query, _ := strings.Cut(r.In.RequestURI, "?")
	if strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") { // url.URL reads // as a host
		r.Out.URL.Opaque = path
	}
	r.Out.URL.RawQuery = query
	r.Out.Host = r.In.Host
	r.SetXForwarded()
	r.Out.Header.Set("X-Forwarded-Proto", p.scheme())
	r.Out.Header.Del("Cookie")
	for _, line := range r.In.Header["Cookie"] {
		if line = withoutCookie(line, p.cookieName()); line != "" {
			r.Out.Header.Add("Cookie", line)
		}
	}
}

// withoutCookie returns a Cookie header without the cookies of that name. All others stay as they are.
func withoutCookie(line, name string) string {
	kept := slices.DeleteFunc(strings.Split(line, ";"), func(pair string) bool {
		n, _, _ := strings.Cut(pair, "=")
		return strings.TrimSpace(n) == name
	})
	return strings.TrimSpace(strings.Join(kept, ";"))
}

// dial connects to the app of a request. The transport reuses a connection only for the same app, but for any visitor;
// this is safe because all of them have access to the app.
func (p *Apps) dial(ctx context.Context, _, address string) (net.Conn, error) {
	label, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	app, err := parseLabel(label)
	if err != nil {
		return nil, err
	}
	v, ok := ctx.Value(visitorCtx{}).(Visitor)
	if !ok {
		return nil, errors.New("the app was not requested")
	}
	return p.nodes.port(ctx, nodeKey{v.Org, app.Cluster, app.Rank}, app.Port)
}

func (p *Apps) failed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the browser has disconnected
	}
	if f := fault.From(err); f != nil {
		p.respond(w, http.StatusBadGateway, f.Message)
		return
	}
	p.cfg.Log.Info("an app broke off", "app", r.Host, "err", err)
	p.respond(w, http.StatusBadGateway, "The app does not answer as a web server does.")
}

var page = template.Must(template.New("").Parse(`<!doctype html><meta charset="utf-8"><title>Muster</title>
<p style="font:16px/1.5 system-ui;max-width:36em;margin:4em auto;padding:0 1em">{{.}}</p>
`))

func (p *Apps) respond(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = page.Execute(w, text)
}
