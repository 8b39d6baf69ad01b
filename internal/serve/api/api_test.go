package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/billing/postpaid"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/data/bucket"
	"github.com/musterhq/muster/internal/data/sharedfs"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/erasure"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/fleet/template"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/nouns"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/serve/api"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/events"
	"github.com/musterhq/muster/internal/stripe/outbox"
	"github.com/musterhq/muster/internal/stripe/reconcile"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/apifuzz"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/s3test"
)

const password = "correct horse battery"

// world is the whole face over a real database.
type world struct {
	t        *testing.T
	db       *db.DB
	acc      *account.Accounts
	market   *market.Market
	clusters *cluster.Clusters
	stripe   *sandbox.Server
	host     *fakeHost
	api      *api.API
	log      *bytes.Buffer
	in       *events.Inbox
	pay      *payment.Payments
	store    *s3test.Gateway // of buckets; nil until one is needed
}

// shop is the sandbox's Stripe and the payments over it.
func shop(t *testing.T, d *db.DB) (*sandbox.Server, *outbox.Outbox, *events.Inbox, *payment.Payments) {
	t.Helper()
	const secret = "whsec_test"
	fake, err := sandbox.New(sandbox.Config{WebhookSecret: secret})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(fake)
	t.Cleanup(srv.Close)
	c, err := stripe.New(stripe.Config{Key: "sk_test_x", WebhookSecret: secret, URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	out := outbox.New(d, c, slog.New(slog.DiscardHandler))
	in := events.New(d, c, slog.New(slog.DiscardHandler))
	p, err := payment.New(d, out, in, payment.Config{
		Currency:      "USD",
		DefaultMethod: "pm_card_visa",
		ReturnURL:     "http://muster.test/billing",
		Sandbox:       true,
		Taxer:         tax.Flat{Rates: tax.EU()},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return fake, out, in, p
}

func open(t *testing.T, change ...func(*api.Config, *account.Config)) *world {
	t.Helper()
	return openOn(t, dbtest.New(t), change...)
}

func openOn(t *testing.T, d *db.DB, change ...func(*api.Config, *account.Config)) *world {
	t.Helper()
	box, err := seal.NewBox(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	cfg, acc := api.Config{
		Currency:         "USD",
		Version:          "test",
		PublicURL:        "http://muster.test",
		CallerPerMinute:  -1,
		AddressPerMinute: -1,
	}, account.Config{
		SignUpsPerHour: 1000,
		HashMemoryKiB:  64, // a hash of 19 MiB takes 0.3 s with the race detector
	}
	for _, c := range change {
		c(&cfg, &acc)
	}
	m, err := market.New(d, box, market.Config{Currency: "USD", AllowSimulated: true})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, db: d, market: m, acc: account.New(d, acc), log: &bytes.Buffer{}, host: &fakeHost{}}
	w.clusters = cluster.New(d, m, nil, cluster.Config{Currency: "USD", Box: box})
	log := slog.New(slog.NewTextHandler(w.log, nil))
	client, out, in, pay := shop(t, d)
	w.stripe, w.in, w.pay = client, in, pay
	outs, err := payout.New(d, out, in, payout.Config{
		Currency: "USD",
		PageURL:  "http://muster.test/payouts",
		Sandbox:  true,
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	after, err := postpaid.New(d, out, pay.Invoices, postpaid.Config{Currency: "USD"}, log)
	if err != nil {
		t.Fatal(err)
	}
	w.api = api.New(cfg, api.Deps{
		Nouns: nouns.Nouns{
			Accounts:   w.acc,
			Market:     m,
			Hosts:      host.New(d, nil),
			Clusters:   w.clusters,
			Templates:  template.New(w.db, ""),
			Volumes:    volume.New(w.db, folderOf(t), volume.Config{Currency: "USD", Box: box}),
			Outbox:     out,
			Events:     in,
			Reconciler: reconcile.New(d, out.Client(), in.Refresh, "USD", log),
			Payments:   pay,
			Payouts:    outs,
			Postpaid:   after,
			Bonds:      bond.New(d, "USD"),
			Budgets:    budget.New(d, "USD"),
			Leases:     metering.NewLeases(d),
			Statements: statement.New(d, "USD", cfg.Merchant),
			Notices:    notify.NewNotices(d),
			Shared:     sharedfs.New(w.db, nil),
			Buckets:    bucket.New(w.db, bucket.Config{Box: box, AnyAddress: true}),
			Webhooks:   notify.NewWebhooks(d, box, false),
			Erasure:    erasure.New(d, w.acc.Passwords),
		},
		Database: d,
		Box:      box,
		Log:      log,
	})
	w.api.OpenStreamsWith(w.host.open)
	return w
}

// reply is what came back.
type reply struct {
	*http.Response
	raw  string
	json map[string]any
}

func (r reply) text(path string) string {
	var v any = r.json
	for _, k := range strings.Split(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = m[k]
	}
	s, _ := v.(string)
	return s
}

func (r reply) list(key string) []any {
	l, _ := r.json[key].([]any)
	return l
}

// call sends body (a string as it is, anything else as JSON) and header pairs.
func (w *world) call(token, method, path string, body any, headers ...string) reply {
	w.t.Helper()
	return w.callIn(w.t.Context(), token, method, path, body, headers...)
}

// callIn is call within a context.
func (w *world) callIn(ctx context.Context, token, method, path string, body any, headers ...string) reply {
	w.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			w.t.Fatal(err)
		}
		reader = bytes.NewReader(raw)
	}
	r := httptest.NewRequestWithContext(ctx, method, path, reader)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, r)
	w.checkDocumented(method, r.URL.Path, rec)
	out := reply{Response: rec.Result(), raw: rec.Body.String()}
	if strings.Contains(rec.Header().Get("Content-Type"), "json") {
		if err := json.Unmarshal(rec.Body.Bytes(), &out.json); err != nil {
			w.t.Fatalf("%s %s answers no JSON object: %v\n%s", method, path, err, out.raw)
		}
	}
	return out
}

// checkDocumented holds an answer to the OpenAPI document: its status and its body are there.
func (w *world) checkDocumented(method, path string, rec *httptest.ResponseRecorder) {
	w.t.Helper()
	c, err := documentChecker(w.api)
	if err != nil {
		w.t.Fatal(err)
	}
	template := c.Template(method, path)
	if template == "" || rec.Code == http.StatusInternalServerError { // some tests take the database away
		return
	}
	if err := c.Check(method, template, rec.Code, rec.Header().Get("Content-Type"), rec.Body.Bytes()); err != nil {
		w.t.Errorf("%s %s differs from the document: %v\n%s", method, template, err, rec.Body)
	}
}

var checker struct {
	once sync.Once
	of   *apifuzz.Checker
	err  error
}

// documentChecker reads the document of a server, which is the same for all.
func documentChecker(server http.Handler) (*apifuzz.Checker, error) {
	checker.once.Do(func() {
		rec := httptest.NewRecorder()
		server.ServeHTTP(rec, httptest.NewRequest("GET", api.Base+"/openapi.json", nil))
		_, checker.of, checker.err = apifuzz.Read(rec.Body.Bytes())
	})
	return checker.of, checker.err
}

// want holds a reply to a status and, when it is a problem, to a code.
func (w *world) want(r reply, status int, code string) reply {
	w.t.Helper()
	if r.StatusCode != status || r.text("code") != code {
		w.t.Errorf("%d %s, want %d %s\n%s\n%s", r.StatusCode, r.text("code"), status, code, r.raw, w.log)
	}
	if code != "" && r.Header.Get("Content-Type") != "application/problem+json" {
		w.t.Errorf("a problem of type %s", r.Header.Get("Content-Type"))
	}
	if strings.Contains(r.raw, "$schema") {
		w.t.Error("the answer has a $schema")
	}
	return r
}

// user signs up and returns a token with all scopes.
func (w *world) user(name string) string {
	w.t.Helper()
	r := w.want(w.call("", "POST", "/api/v1/signup", map[string]any{
		"email":    name + "@example.com",
		"password": password,
	}), 201, "")
	return r.text("token")
}

// token makes a token with the scopes.
func (w *world) token(by string, scopes ...string) string {
	w.t.Helper()
	return w.want(w.call(by, "POST", "/api/v1/tokens", map[string]any{
		"name":   "test",
		"scopes": scopes,
	}), 201, "").text("token")
}
