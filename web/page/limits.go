package page

import (
	"net/http"
	"time"

	"github.com/go-chi/httprate"
)

// LimitRequests limits the requests per client address, as the API does. The limit is per replica.
func (s *Site) LimitRequests(next http.Handler) http.Handler {
	perMinute := s.AddressPerMinute
	if perMinute == 0 {
		perMinute = 3000
	}
	return httprate.LimitBy(perMinute, time.Minute,
		func(r *http.Request) (string, error) { return httprate.CanonicalizeIP(Address(r)), nil },
		httprate.WithResponseHeaders(httprate.ResponseHeaders{}),
		httprate.WithLimitHandler(func(w http.ResponseWriter, _ *http.Request) {
			s.secureHeaders(w)
			w.Header().Set("Retry-After", "10")
			http.Error(w, "Too many requests from your network: wait a moment and load the page again.",
				http.StatusTooManyRequests)
		}))(next)
}

// LimitForms limits the size of posted forms, which are all short.
func LimitForms(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 256<<10)
		next.ServeHTTP(w, r)
	})
}
