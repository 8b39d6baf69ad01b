package api

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/nouns"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func bare(t *testing.T) *API {
	t.Helper()
	d := dbtest.New(t)
	box, err := seal.NewBox(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	m, err := market.New(d, box, market.Config{Currency: "USD"})
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Currency:         "USD",
		CallerPerMinute:  -1,
		AddressPerMinute: -1,
	}, Deps{
		Nouns: nouns.Nouns{
			Accounts: account.New(d, account.Config{}),
			Market:   m,
			Hosts:    host.New(d, nil),
			Clusters: cluster.New(d, m, nil, cluster.Config{Currency: "USD", Box: box}),
		},
		Database: d,
		Box:      box,
		Log:      slog.New(slog.DiscardHandler),
	})
}

// TestEveryRouteSaysWho walks the router itself, so that a route cannot get in beside the table.
func TestEveryRouteSaysWho(t *testing.T) {
	t.Parallel()
	a := bare(t)
	var open []string
	seen := 0
	err := chi.Walk(a.Handler.(chi.Routes), func(method, path string, _ http.Handler,
		_ ...func(http.Handler) http.Handler) error {
		seen++
		path = strings.TrimSuffix(path, "/")
		rule, ok := a.table.rule[method+" "+path]
		switch {
		case !ok || (!rule.public && rule.name == ""):
			t.Errorf("%s %s declares no access rule", method, path)
		case rule.public:
			open = append(open, method+" "+path)
		default:
			probe := strings.NewReplacer("{id}", "x").Replace(path)
			rec := httptest.NewRecorder()
			a.ServeHTTP(rec, httptest.NewRequest(method, probe, strings.NewReader("{}")))
			if rec.Code != http.StatusUnauthorized {
				t.Errorf("%s %s answers %d to a caller without a token", method, probe, rec.Code)
			}
		}
		return nil
	})
	if err != nil || seen < 10 {
		t.Fatalf("%d routes seen, %v", seen, err)
	}
	slices.Sort(open)
	want := []string{"GET /api/docs", "GET /api/v1/estimate",
		"GET /api/v1/ledger/head", "GET /api/v1/openapi.json", "GET /healthz", "GET /readyz", "POST /api/v1/signup",
		"POST /api/v1/device-logins",
		"POST /api/v1/device-logins/token", "POST /stripe/webhook"}
	for _, o := range open {
		if !slices.Contains(want, o) {
			t.Errorf("%s is open to everybody", o)
		}
	}
}

func TestAccessRule(t *testing.T) {
	t.Parallel()
	reader := account.Principal{Scopes: []string{account.ScopeRead}}
	for name, tc := range map[string]struct {
		rule    access
		allowed bool
	}{
		"public": {public, true}, "signed in": {signedIn, true},
		"one of two": {readClusters, true}, "another": {writeClusters, false},
	} {
		if err := tc.rule.check(reader, nil); (err == nil) != tc.allowed {
			t.Errorf("%s: %v", name, err)
		}
	}
}
