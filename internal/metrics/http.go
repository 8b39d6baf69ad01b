package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/musterhq/muster/internal/tracing"
)

var (
	requests = counter("muster_http_requests_total", "Requests by face (api or web), route, method and status; "+
		"0: the connection was taken over or aborted.", "face", "route", "method", "status")
	requestSeconds = histogram("muster_http_request_seconds", "Time to answer a request; event streams are left out.",
		seconds, "face", "route", "method")
)

// noRoute is the label of requests that match no route: clients choose those paths, and could choose any number of
// them.
const noRoute = "none"

// HTTP returns a middleware for the root of a chi router that counts the requests of one face, api or web, measures
// their duration, and logs each that succeeded and may have changed something: who sent which method to which route,
// never a path or a query, which may contain secrets. Other requests are logged at level debug. Each request is a
// trace.
func HTTP(face string, log *slog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			began := time.Now()
			ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			var from requester
			ctx, span := tracing.Request(r.Context(), face)
			r = r.WithContext(context.WithValue(ctx, requesterKey{}, &from))
			defer func() {
				took, route, method := time.Since(began), routeOf(r), methodOf(r)
				attrs := append(from.attrs, slog.String("face", face), slog.String("method", method),
					slog.String("route", route), slog.Int("status", ww.Status()), slog.Duration("took", took),
					slog.String("request", ww.Header().Get("Request-Id")))
				if span.Recorded() {
					attrs = append(attrs, slog.String("trace", span.ID()))
				}
				log.LogAttrs(r.Context(), levelOf(route, method, ww.Status()), "request", attrs...)
				span.Name(method + " " + route)
				span.Set("status", ww.Status())
				span.End(failed(ww.Status()))
				if ww.Status() == 0 { // the handler hijacked or aborted the connection
					requests.WithLabelValues(face, route, method, "0").Inc()
					return
				}
				requests.WithLabelValues(face, route, method, strconv.Itoa(ww.Status())).Inc()
				if !strings.HasPrefix(ww.Header().Get("Content-Type"), "text/event-stream") {
					requestSeconds.WithLabelValues(face, route, method).Observe(took.Seconds())
				}
			}()
			next.ServeHTTP(ww, r)
		})
	}
}

// failed returns an error for a status that is the server's fault.
func failed(status int) error {
	if status < http.StatusInternalServerError {
		return nil
	}
	return errServer
}

var errServer = errors.New("the server could not answer")

type requesterKey struct{}

// requester is what the log says of the one who sent a request.
type requester struct{ attrs []slog.Attr }

// From notes who sent the request of a context, for its line in the log.
func From(ctx context.Context, who ...slog.Attr) {
	if r, ok := ctx.Value(requesterKey{}).(*requester); ok {
		r.attrs = who
	}
}

// levelOf is info for requests that may have changed something. What was refused changed nothing, and anybody can send
// any number of it.
func levelOf(route, method string, status int) slog.Level {
	if route == noRoute || method == http.MethodGet || method == http.MethodHead || status == 0 || status >= 400 {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

func routeOf(r *http.Request) string {
	c := chi.RouteContext(r.Context())
	if c == nil {
		return noRoute
	}
	p := c.RoutePattern()
	if p == "" || strings.HasSuffix(p, "*") {
		return noRoute
	}
	return p
}

// methodOf returns the request's method, or "other": clients could invent any number of methods.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return r.Method
	}
	return "other"
}
