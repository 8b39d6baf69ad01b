package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

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

// unlistedEvery is how often a proxy that is not listed is logged.
const unlistedEvery = time.Hour

// WarnUnlistedProxy logs, once an hour at most, that a request says it was forwarded and its peer is none of the
// trusted proxies: either somebody pretends, or a proxy is missing in the list. Then all people behind it are one
// address to every limit.
func WarnUnlistedProxy(log *slog.Logger, trusted []netip.Prefix, next http.Handler) http.Handler {
	var last atomic.Int64 // unix ns
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		forwarded := r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("X-Forwarded-Proto") != "" ||
			r.Header.Get("Forwarded") != ""
		if forwarded {
			peer, err := netip.ParseAddr(hostOf(r.RemoteAddr))
			listed := err == nil && slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(peer) })
			was, now := last.Load(), time.Now().UnixNano()
			if !listed && now-was >= int64(unlistedEvery) && last.CompareAndSwap(was, now) {
				log.WarnContext(r.Context(), "a request was forwarded by an address that MUSTER_TRUSTED_PROXIES does not list; "+
					"if it is your proxy, "+
					"list it: until then everybody behind it shares one limit of requests and sign-ins", "peer", hostOf(r.RemoteAddr))
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
