package api

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/go-chi/httprate"

	"github.com/musterhq/muster/internal/fault"
)

// byAddress bounds what one address may ask before anybody looks at its token, so that guessing tokens stays cheap
// for us. Limits are per replica: they keep one caller from crowding out the others, and decide nothing about money.
func (a *API) byAddress(next http.Handler) http.Handler {
	return a.limit(a.cfg.AddressPerMinute, func(r *http.Request) (string, error) {
		return httprate.CanonicalizeIP(hostOf(r.RemoteAddr)), nil
	}, next)
}

// byCaller bounds what one principal may ask.
func (a *API) byCaller(next http.Handler) http.Handler {
	return a.limit(a.cfg.CallerPerMinute, func(r *http.Request) (string, error) {
		if c := callerOf(r.Context()); c.err == nil {
			return c.principal.Key(), nil
		}
		return "anon:" + httprate.CanonicalizeIP(hostOf(r.RemoteAddr)), nil
	}, next)
}

func (a *API) limit(perMinute int, key httprate.KeyFunc, next http.Handler) http.Handler {
	if perMinute < 0 {
		return next
	}
	return httprate.LimitBy(perMinute, time.Minute, key,
		httprate.WithResponseHeaders(httprate.ResponseHeaders{}),
		httprate.WithLimitHandler(func(w http.ResponseWriter, r *http.Request) {
			p := newProblem(fault.RateLimited, "too many requests: slow down and try again")
			p.retryAfter = 10 * time.Second
			writeProblem(w, p)
		}))(next)
}

// hostOf is a remote address without its port.
func hostOf(address string) string {
	if ap, err := netip.ParseAddrPort(address); err == nil {
		return ap.Addr().Unmap().String()
	}
	return address
}

// ClientAddress sets the request's RemoteAddr to the client's when the peer is a proxy we trust: the rightmost address
// of X-Forwarded-For that is not itself such a proxy. What an untrusted peer claims is ignored.
func ClientAddress(trusted []netip.Prefix, next http.Handler) http.Handler {
	if len(trusted) == 0 {
		return next
	}
	ours := func(s string) (netip.Addr, bool) {
		ip, err := netip.ParseAddr(strings.TrimSpace(s))
		if err != nil {
			return netip.Addr{}, false
		}
		ip = ip.Unmap()
		for _, p := range trusted {
			if p.Contains(ip) {
				return ip, true
			}
		}
		return ip, false
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := ours(hostOf(r.RemoteAddr)); ok {
			hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
			for i := len(hops) - 1; i >= 0; i-- {
				ip, proxy := ours(hops[i])
				if !ip.IsValid() {
					break
				}
				if !proxy || i == 0 {
					r = r.Clone(r.Context())
					r.RemoteAddr = netip.AddrPortFrom(ip, 0).String()
					break
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

type requestIDKey struct{}

// requestID names the request in the log and in an internal problem.
func requestID(ctx context.Context) string {
	s, _ := ctx.Value(requestIDKey{}).(string)
	return s
}
