package api_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/serve/api"
	"github.com/musterhq/muster/internal/testing/apifuzz"
)

// The number of random requests, and the seed of the run. A failure names both.
const (
	envRequests = "MUSTER_FUZZ_REQUESTS"
	envSeed     = "MUSTER_FUZZ_SEED"
)

func fromEnv(t *testing.T, name string, or int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return or
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestRandomRequests sends random requests, made from the API's own document, as every kind of caller. No answer may be
// an internal error, and each has to be what the document says.
func TestRandomRequests(t *testing.T) {
	t.Parallel()
	const callers = 4 // at once
	requests, seed := fromEnv(t, envRequests, 3_000), fromEnv(t, envSeed, int(time.Now().Unix()))
	w := open(t)
	people := w.cast()
	doc, checker, err := apifuzz.Read([]byte(w.call("", "GET", "/api/v1/openapi.json", nil).raw))
	if err != nil {
		t.Fatal(err)
	}
	memory := &apifuzz.Memory{}
	var never, replayed sync.Map // operations that have not succeeded yet; POSTs that were repeated under their key
	var failures, sent, fine atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		g := apifuzz.New(doc, memory, uint64(seed+i), func(method, path string) bool {
			// Signing up hashes a password, which takes longer than a hundred other requests; SSH needs a connection. While
			// sending is paused, no one could pay. A new bucket's store is asked, wherever it is.
			return method == "POST" && strings.HasSuffix(path, "/signup") || strings.HasSuffix(path, "/ssh") ||
				method == "PUT" && strings.HasSuffix(path, "/admin/sending") ||
				method == "POST" && strings.HasSuffix(path, "/buckets")
		})
		g.SetValid(map[string]string{
			"POST " + api.Base + "/clusters":             spec,
			"POST " + api.Base + "/quotes":               spec,
			"POST " + api.Base + "/host-enrollments":     `{"region":"eu-test"}`,
			"POST " + api.Base + "/billing/topups":       `{"amount":"20.00"}`,
			"POST " + api.Base + "/admin/promo-codes":    `{"code":"WELCOME","amount":"5.00","reason":"because"}`,
			"POST " + api.Base + "/budgets":              `{"amount":"100.00"}`,
			"PATCH " + api.Base + "/hosts/{id}":          `{"price_per_gpu_hour":"2.00"}`,
			"PATCH " + api.Base + "/admin/postpaid/{id}": `{"enabled":true,"limit":"100.00","reason":"because"}`,
		})
		for _, op := range g.Operations() {
			never.Store(op, true)
		}
		all.Go(func() {
			for n := 0; n < requests/callers && failures.Load() < 20; n++ {
				r := g.Next()
				who := people[n%len(people)]
				if n%2 == 0 {
					who = people[usual(r.Template)]
				}
				token := who.token.Load().(string)
				if r.Method == http.MethodPost {
					r.Headers = maps.Clone(r.Headers)
					if r.Headers == nil {
						r.Headers = map[string]string{}
					}
					r.Headers["Idempotency-Key"] = fmt.Sprintf("fuzz-%d-%d", i, n)
				}
				rec := w.send(t.Context(), token, r)
				if rec == nil {
					continue // the caller left first
				}
				if r.Method == http.MethodPost && rec.Code < 300 && !strings.HasPrefix(r.Path, "/stripe/") {
					again := w.send(t.Context(), token, r)
					// The first may have revoked the token, or have been the last within a limit. Another caller may have revoked
					// it between the two: the second is then anybody's where no token is needed.
					if again != nil && again.Code != http.StatusUnauthorized && again.Code != http.StatusTooManyRequests {
						wrong := rec.Header().Get("Idempotent-Replayed") != "" || again.Code != rec.Code ||
							again.Header().Get("Idempotent-Replayed") != "true"
						if wrong && !w.revoked(t.Context(), token) {
							failures.Add(1)
							t.Errorf("as %s: %s\nanswer %d (%q); repeated %d (%q): %.500s", who.role, r, rec.Code,
								rec.Header().Get("Idempotent-Replayed"),
								again.Code, again.Header().Get("Idempotent-Replayed"), again.Body)
						}
						replayed.Store(r.Template, true)
					}
				}
				if rec.Code == http.StatusUnauthorized && who.principal != nil {
					w.renew(who) // a request has revoked the token
				}
				sent.Add(1)
				if rec.Code < 300 {
					fine.Add(1)
					never.Delete(r.Method + " " + r.Template)
					memory.Remember(nounOf(r.Template), apifuzz.Decode(rec.Body.Bytes()))
				}
				if err := checker.Check(r.Method, r.Template, rec.Code, rec.Header().Get("Content-Type"),
					rec.Body.Bytes()); err != nil {
					failures.Add(1)
					t.Errorf("as %s: %s\nanswer %d %.2000s\n%v", who.role, r, rec.Code, rec.Body, err)
				}
			}
		})
	}
	all.Wait()
	never.Range(func(op, _ any) bool {
		t.Logf("never succeeded: %s", op)
		return true
	})
	posts := 0
	replayed.Range(func(any, any) bool { posts++; return true })
	if t.Logf("%d kinds of POST were repeated under their key", posts); requests >= 20_000 && posts < 10 {
		t.Errorf("only %d kinds of POST succeeded and were repeated under their key", posts)
	}
	t.Logf("%d requests of seed %d, %d of them succeeded", sent.Load(), seed, fine.Load())
	if t.Failed() {
		for line := range strings.Lines(w.log.String()) {
			if strings.Contains(line, "level=ERROR") {
				t.Log(line)
			}
		}
	}
	if fine.Load() < sent.Load()/20 {
		t.Errorf("only %d of %d requests succeeded: the requests are too wrong to test much", fine.Load(), sent.Load())
	}
}

// nounOf is the last fixed part of a path: "clusters" of "/api/v1/clusters/{id}".
func nounOf(path string) string {
	parts := strings.Split(path, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		if !strings.HasPrefix(parts[i], "{") {
			return parts[i]
		}
	}
	return ""
}

// person is someone who calls the API. Their token changes when a request revokes it.
type person struct {
	role      string
	principal *account.Principal // nil: someone without an account
	scopes    []string
	token     atomic.Value // string
}

// cast makes one caller of each kind, with things of their own to find.
func (w *world) cast() []*person {
	w.t.Helper()
	operator, renter, stranger := w.user("op"), w.user("ada"), w.user("eve")
	w.boss("ann")
	for range 6 {
		w.sell(operator, 8, "2.00")
	}
	w.fund(renter, "500.00")
	w.fund(stranger, "10.00")
	w.want(w.call(renter, "POST", "/api/v1/clusters", spec), 202, "")
	w.want(w.call(renter, "POST", "/api/v1/quotes", spec), 201, "")
	out := []*person{{role: "nobody"}, {role: "somebody with a false token"}}
	out[0].token.Store("")
	out[1].token.Store("muster_pat_false")
	all := account.Scopes()
	for _, p := range []struct {
		role, name string
		scopes     []string
	}{
		{"renter", "ada", all}, {"operator", "op", all}, {"stranger", "eve", all},
		{"admin", "ann", append(slices.Clone(all), account.ScopeAdmin)},
		{"renter who may read", "ada", []string{account.ScopeRead}},
		{"renter who may bill", "ada", []string{account.ScopeBilling}},
	} {
		_, principal, err := w.acc.Sessions.SignIn(w.t.Context(), account.SignIn{Email: p.name + "@example.com",
			Password: password})
		if err != nil {
			w.t.Fatal(err)
		}
		who := &person{role: p.role, principal: &principal, scopes: p.scopes}
		w.renew(who)
		out = append(out, who)
	}
	return out
}

// usual is who of the cast has most reason to call a path.
func usual(path string) int {
	const renter, operator, admin = 2, 3, 5
	switch {
	case strings.Contains(path, "/admin/"):
		return admin
	case strings.Contains(path, "/host"), strings.Contains(path, "/payouts"), strings.Contains(path, "/earnings"):
		return operator
	}
	return renter
}

// renew gives a person another token.
func (w *world) renew(p *person) {
	_, secret, err := w.acc.Tokens.Issue(context.WithoutCancel(w.t.Context()), *p.principal, account.NewToken{
		Name:   "test",
		Scopes: p.scopes,
	})
	if err != nil {
		w.t.Errorf("a token for the %s: %v", p.role, err)
	}
	p.token.Store(secret)
}

// revoked reports whether a token counts no longer.
func (w *world) revoked(ctx context.Context, token string) bool {
	rec := w.send(ctx, token, apifuzz.Request{Method: http.MethodGet, Path: "/api/v1/me"})
	return rec != nil && rec.Code == http.StatusUnauthorized
}

// send is one random request; nil when it was cut off because it took too long, as one that waits does.
func (w *world) send(ctx context.Context, token string, r apifuzz.Request) *httptest.ResponseRecorder {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req := httptest.NewRequestWithContext(ctx, r.Method, "http://muster.test/", strings.NewReader(r.Body))
	u, err := req.URL.Parse(r.Path)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", r, err))
	}
	req.URL, req.RequestURI = u, r.Path
	for k, v := range r.Headers {
		req.Header.Set(k, v)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, req)
	if ctx.Err() != nil {
		return nil
	}
	return rec
}
