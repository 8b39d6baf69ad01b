package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/httprate"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/metrics"
)

// envelope surrounds every request: it gives the request its name for the log, sets the headers of every answer, and
// answers after a panic.
func (a *API) envelope(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := make([]byte, 8)
		rand.Read(id)
		name := "req_" + hex.EncodeToString(id)
		ctx := context.WithValue(r.Context(), requestIDKey{}, name)
		ctx = context.WithValue(ctx, pathKey{}, r.URL.Path)
		r = r.WithContext(ctx)
		h := w.Header()
		h.Set("Request-Id", name)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if strings.HasPrefix(a.cfg.PublicURL, "https://") {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler {
					panic(p)
				}
				a.Log.ErrorContext(ctx, "panic", slog.String("request", name), slog.Any("panic", p),
					slog.String("stack", string(debug.Stack())))
				writeProblem(w, newProblem(fault.Internal, "something went wrong on our side; it was noted as "+name))
			}
		}()
		if err := checkURL(r.URL); err != nil { // text that PostgreSQL cannot store
			writeProblem(w, a.problem(ctx, err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admit accepts a request that the limits and its route's rule allow, before it reads a byte of the body, and puts the
// caller into the context. Limits are per replica: they keep one caller from crowding out the others, and decide
// nothing about money. The limit of the address comes before the look-up of the token, so that guessed tokens stay
// cheap.
func (a *API) admit(next http.Handler) http.Handler {
	addressLimited, callerLimited := limiter(a.cfg.AddressPerMinute), limiter(a.cfg.CallerPerMinute)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		address := hostOf(r.RemoteAddr)
		source := httprate.CanonicalizeIP(address)
		if addressLimited(w, r, source) {
			return
		}
		var c caller
		limited := "anon:" + source
		if secret, ok := bearer(r); !ok {
			c.err = fault.New(fault.Unauthorized, "send an API token: Authorization: Bearer %s…", account.TokenPrefix)
		} else if c.principal, c.err = a.Accounts.Tokens.Principal(r.Context(), secret); c.err == nil {
			limited = c.principal.Key()
		}
		c.principal.Address = address
		metrics.From(r.Context(), c.principal.LogAttrs()...)
		if callerLimited(w, r, limited) {
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
		method := r.Method
		if method == http.MethodHead { // HEAD answers as GET, without the body
			method = http.MethodGet
		}
		rule := a.table.rule[method+" "+chi.RouteContext(r.Context()).RoutePattern()]
		if err := rule.check(c.principal, c.err); err != nil {
			writeProblem(w, a.problem(r.Context(), err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// limiter returns a function that counts a request against the limit of its key per minute, and responds to it and
// returns true if there were too many. A negative limit never does.
func limiter(perMinute int) func(w http.ResponseWriter, r *http.Request, key string) bool {
	if perMinute < 0 {
		return func(http.ResponseWriter, *http.Request, string) bool { return false }
	}
	return httprate.NewRateLimiter(perMinute, time.Minute,
		httprate.WithResponseHeaders(httprate.ResponseHeaders{}),
		httprate.WithLimitHandler(func(w http.ResponseWriter, _ *http.Request) {
			p := newProblem(fault.RateLimited, "too many requests: slow down and try again")
			p.retryAfter = 10 * time.Second
			writeProblem(w, p)
		})).RespondOnLimit
}
