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

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
)

// access is the rule of who may call a route. The zero value is not a rule: a route without one cannot be registered,
// and a test checks every route.
type access struct {
	name   string
	public bool
	scopes []string // one of them suffices; empty and not public: any valid token
	staff  bool     // and the user is an admin now, not only when the token was created
}

var (
	// public routes need no token.
	public = access{name: "everybody", public: true}
	// signedIn routes take any valid token: they show nothing but the caller, or check scopes themselves.
	signedIn = access{name: "any token"}
)

// scoped routes take a token that has at least one of the scopes.
func scoped(scopes ...string) access {
	return access{name: strings.Join(scopes, " or "), scopes: scopes}
}

// describe returns the rule as a sentence of the reference.
func (r access) describe() string {
	switch {
	case r.public:
		return "Needs no token."
	case r.staff:
		return "Needs a token of the platform's staff."
	case len(r.scopes) == 0:
		return "Needs any valid token."
	}
	return "Needs a token with the scope `" + strings.Join(r.scopes, "` or `") + "`."
}

// check is nil when p may call the route.
func (r access) check(p account.Principal, presented error) error {
	switch {
	case r.public:
		return nil
	case presented != nil:
		return presented
	case len(r.scopes) > 0 && !p.CanAny(r.scopes...):
		return fault.New(fault.Forbidden, "this token lacks the scope for it: it needs %s", r.name)
	case r.staff:
		return account.RequireStaff(p)
	}
	return nil
}

type callerKey struct{}

// caller is who presented what: a principal, or why there is none.
type caller struct {
	principal account.Principal
	err       error
}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

func bearer(r *http.Request) (string, bool) {
	scheme, secret, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(secret), ok && strings.EqualFold(scheme, "Bearer")
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

// unlistedEvery is how often a proxy that is not listed is logged.
const unlistedEvery = time.Hour

// WarnUnlistedProxy logs, once an hour at most, that a request claims to be forwarded although its peer is not a
// trusted proxy: the claim is false, or a proxy is missing in the list. In the second case, all people behind it share
// the limits of one address.
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
