package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
)

// access says who may call a route. The zero value is not a rule: a route without one cannot be registered, and a
// test walks the router.
type access struct {
	name   string
	public bool
	scopes []string // one of them is enough; empty and not public: any valid token
	staff  bool     // and the user is a platform operator now, whatever was so when the token was made
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

// authenticate finds out who calls and puts it in the request's context. It refuses nothing: the route's rule does.
func (a *API) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c caller
		secret, ok := bearer(r)
		if !ok {
			c.err = fault.New(fault.Unauthorized, "send an API token: Authorization: Bearer %s…", account.TokenPrefix)
		} else {
			c.principal, c.err = a.accounts.TokenPrincipal(r.Context(), secret)
		}
		c.principal.Address = hostOf(r.RemoteAddr)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	})
}

func bearer(r *http.Request) (string, bool) {
	scheme, secret, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(secret), ok && strings.EqualFold(scheme, "Bearer")
}

// guard holds an operation to its rule before huma reads a byte of the body.
func (a *API) guard(rule access) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		c := callerOf(ctx.Context())
		if err := rule.check(c.principal, c.err); err != nil {
			a.refuse(ctx, err)
			return
		}
		next(contractContext{ctx})
	}
}
