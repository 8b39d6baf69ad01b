package metrics

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
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

// HTTP returns a middleware for the root of a chi router that counts the requests of one face, api or web, and measures
// their duration.
func HTTP(face string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			began := time.Now()
			ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			defer func() {
				route, method := routeOf(r), methodOf(r)
				if ww.Status() == 0 { // the handler hijacked or aborted the connection
					requests.WithLabelValues(face, route, method, "0").Inc()
					return
				}
				requests.WithLabelValues(face, route, method, strconv.Itoa(ww.Status())).Inc()
				if !strings.HasPrefix(ww.Header().Get("Content-Type"), "text/event-stream") {
					requestSeconds.WithLabelValues(face, route, method).Observe(time.Since(began).Seconds())
				}
			}()
			next.ServeHTTP(ww, r)
		})
	}
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
