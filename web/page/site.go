// Package page is the frame of all pages: the visitor and the access rules, rendering, forms, cookies, lists and
// notices. The pages themselves are in sibling packages.
package page

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/nouns"
	"github.com/musterhq/muster/static"
	"github.com/musterhq/muster/web/view"
)

// Config has the services and settings of the dashboard. All fields are required unless they say otherwise.
type Config struct {
	nouns.Nouns                  // but for Events
	Dialer      *dialback.Dialer // reads logs from hosts
	Bus         *bus.Bus         // nil: pages poll every second

	// EnrollCommand returns the command that an operator runs on a new host; the token works once.
	EnrollCommand func(token string) string

	// SSHAddr is host:port of the SSH gateway, or "". AppLink returns a link that authorises its bearer to open an HTTP
	// port of a rank; nil: ports are not shown.
	SSHAddr string
	AppLink func(p account.Principal, cl id.Cluster, rank, port int) (string, error)

	// Terminal runs a login shell on a rank until it ends, and returns its exit code; nil: pages have no terminals.
	Terminal func(ctx context.Context, p account.Principal, cl id.Cluster, rank int, t dialback.Terminal) (int, error)

	// Ready checks the parts of the platform for the status page, by name.
	Ready map[string]func(context.Context) error
	// TermsText and PrivacyText are the operator's own terms and privacy notice, as plain text; "" = a description of the
	// software that says that it is no contract.
	TermsText, PrivacyText string

	Merchant  statement.Party // merchant of record, on invoices
	Currency  string
	Sandbox   bool   // no real money; every page says so
	PublicURL string // as browsers see it; https makes cookies Secure
	Log       *slog.Logger
	Now       func() time.Time
	TrialAge  time.Duration // how old the ledger's totals on the admin console may be; 0: sum for each view

	// Commands returns the pages about the command line in Markdown, by the name of the command below muster; nil: the
	// documentation has none.
	Commands func() map[string]string
	// OpenAPI returns the document of the REST API, of which the documentation makes its reference; nil: there is none.
	OpenAPI func() ([]byte, error)

	AddressPerMinute int // requests for pages per address, minute and replica; 0 = 3000
}

// Site is the state that all pages share. Make one with New.
type Site struct {
	Config
	assets *static.Assets
	secure bool
}

// New returns a site; it starts nothing.
func New(cfg Config) *Site {
	return &Site{Config: cfg, assets: static.New(), secure: len(cfg.PublicURL) > 8 && cfg.PublicURL[:8] == "https://"}
}

// Static mounts the files that pages load.
func (s *Site) Static(r chi.Router) { r.Get("/static/*", s.assets.ServeHTTP) }

// Visit is one request and its visitor.
type Visit struct {
	W    http.ResponseWriter
	R    *http.Request
	Who  account.Principal // zero without a session
	Site *Site

	Status int // HTTP status of the response; 0 = 200
}

// SignedIn reports whether the visitor is signed in.
func (v *Visit) SignedIn() bool { return !v.Who.User.IsZero() }

// Page returns the frame of a page, with the visitor's wallet.
func (v *Visit) Page(title, section string) view.Page {
	p := view.Page{Title: title, Section: section, Theme: theme(v.R), Sandbox: v.Site.Sandbox, Asset: v.Site.assets.URL}
	p.Wallet.Currency = v.Site.Currency
	if v.SignedIn() {
		p.Who, p.Admin = v.Who.OrgName, v.Who.Admin
		p.Wallet = v.Site.WalletOf(v.R.Context(), v.Who)
		p.Notices = len(v.Site.unread(v.R.Context(), v.Who))
	}
	return p
}

// Handler serves one visit. An error becomes an error page.
type Handler func(*Visit) error

// Handle wraps a handler with security headers, the visitor, the access rule and error pages.
func (s *Site) Handle(rule Access, h Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.secureHeaders(w)
		v := &Visit{W: w, R: r, Site: s}
		defer s.recoverPanic(v)
		if err := s.recognise(v); err != nil {
			s.fail(v, err)
			return
		}
		if !rule.anybody && !rule.staff && !v.SignedIn() {
			s.ToSignIn(v)
			return
		}
		if err := rule.check(v.Who); err != nil {
			s.fail(v, err)
			return
		}
		if err := checkOrg(v, rule); err != nil {
			s.fail(v, err)
			return
		}
		if err := h(v); err != nil {
			s.fail(v, err)
		}
	}
}

// recoverPanic turns a panic of a handler into an error page, unless the handler aborted the response on purpose.
func (s *Site) recoverPanic(v *Visit) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.fail(v, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
}

func (s *Site) secureHeaders(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
		"font-src 'self'; connect-src 'self'; form-action 'self' https://checkout.stripe.com https://hooks.stripe.com "+
		"https://connect.stripe.com; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if s.secure { // for this host only: the domain's other hosts may not support https
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// AllowInlineStyles lets one page set styles in its elements, which pages otherwise do not.
func AllowInlineStyles(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy",
		strings.Replace(h.Get("Content-Security-Policy"), "style-src 'self'", "style-src 'self' 'unsafe-inline'", 1))
}

// fail logs an error and shows the part of it that is safe to show.
func (s *Site) fail(v *Visit, err error) {
	kind := fault.KindOf(err)
	f := fault.From(err)
	title, detail := kind.Title(), "Try again in a moment. If it stays, write to us what you did and when."
	switch {
	case v.R.Context().Err() != nil && errors.Is(err, v.R.Context().Err()):
		return // the client disconnected
	case f == nil || kind == fault.Internal:
		s.Log.ErrorContext(v.R.Context(), "page failed", "path", v.R.URL.Path, "err", err)
	default:
		detail = f.Message
	}
	v.Status = kind.HTTPStatus()
	if f != nil && f.RetryAfter > 0 {
		v.W.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.RetryAfter.Seconds()))))
	}
	_ = s.Render(v, view.ErrorPage(v.Page(title, ""), title, detail))
}
