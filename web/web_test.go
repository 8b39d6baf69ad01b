package web_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"
	"github.com/go-chi/chi/v5"

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
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/nouns"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/events"
	"github.com/musterhq/muster/internal/stripe/outbox"
	"github.com/musterhq/muster/internal/stripe/reconcile"
	"github.com/musterhq/muster/internal/stripe/sandbox"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/web"
)

// browser is a visitor with cookies, on a site of its own.
type browser struct {
	t    testing.TB
	url  string
	http *http.Client
	db   *db.DB
	m    *market.Market
	pay  *payment.Payments
	out  *outbox.Outbox
	outs *payout.Payouts

	routes chi.Routes
}

func open(t testing.TB) *browser {
	t.Helper()
	return openWith(t, func(*web.Config) {})
}

// openWith is open for a site with settings of its own.
func openWith(t testing.TB, set func(*web.Config)) *browser {
	t.Helper()
	d := dbtest.New(t)
	box, err := seal.NewBox(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	m, err := market.New(d, box, market.Config{Currency: "USD", AllowSimulated: true})
	if err != nil {
		t.Fatal(err)
	}
	r := chi.NewRouter()
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	out, in, pay := sandboxPayments(t, d, r, srv.URL)
	outs, err := payout.New(d, out, in, payout.Config{
		Currency:    "USD",
		PageURL:     srv.URL + "/payouts",
		Sandbox:     true,
		NewHoldback: 30 * 24 * time.Hour,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	after, err := postpaid.New(d, out, pay.Invoices, postpaid.Config{Currency: "USD"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	accounts := account.New(d, account.Config{
		RecheckEvery:  10 * time.Millisecond,
		HashMemoryKiB: 64, // a hash of 19 MiB takes 0.3 s with the race detector
		Box:           box,
		PublicURL:     localhost(srv.URL),
	})
	cfg := web.Config{
		Nouns: nouns.Nouns{
			Reconciler: reconcile.New(d, out.Client(), in.Refresh, "USD", slog.New(slog.DiscardHandler)),
			Outbox:     out,
			Payments:   pay,
			Payouts:    outs,
			Postpaid:   after,
			Bonds:      bond.New(d, "USD"),
			Budgets:    budget.New(d, "USD"),
			Accounts:   accounts,
			Market:     m,
			Hosts:      host.New(d, nil),
			Leases:     metering.NewLeases(d),
			Notices:    notify.NewNotices(d),
			Shared:     sharedfs.New(d, nil),
			Buckets:    bucket.New(d, bucket.Config{Box: box, AnyAddress: true}),
			Webhooks:   notify.NewWebhooks(d, box, false),
			Erasure:    erasure.New(d, accounts.Passwords),
			Statements: statement.New(d, "USD", statement.Party{Name: "Muster Test Ltd", Address: []string{"1 Test Street"}}),
			Templates:  template.New(d, ""),
			Volumes: volume.New(d, folderOf(t, srv.URL), volume.Config{
				Currency: "USD", Box: box, PricePerGBHour: 68_493, // 0.05 for a month
			}),
			Clusters: cluster.New(d, m, nil, cluster.Config{Currency: "USD", Box: box}),
		},
		Merchant: statement.Party{Name: "Muster Test Ltd", Address: []string{"1 Test Street"}},
		Currency: "USD", Sandbox: true, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: time.Now,
		Ready:         map[string]func(context.Context) error{"Database": d.Ping},
		TermsText:     "# Our own terms\none line\nand its end\n\nanother paragraph",
		PublicURL:     localhost(srv.URL),
		EnrollCommand: func(string) string { return "muster-agent enroll" },
	}
	set(&cfg)
	web.New(cfg).Routes(r)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t, srv.URL, &http.Client{Jar: jar}, d, m, pay, out, outs, r}
}

// localhost is the site's address by a name: passkeys belong to names.
func localhost(site string) string { return strings.Replace(site, "127.0.0.1", "localhost", 1) }

// sandboxPayments takes payments through the sandbox's Stripe, whose pages are among the site's own.
func sandboxPayments(t testing.TB, d *db.DB, r chi.Router, site string) (*outbox.Outbox,
	*events.Inbox, *payment.Payments) {
	t.Helper()
	fake, err := sandbox.New(sandbox.Config{WebhookSecret: "w", PublicURL: site + "/sandbox"})
	if err != nil {
		t.Fatal(err)
	}
	client := httptest.NewServer(fake)
	t.Cleanup(client.Close)
	r.Handle("/sandbox/*", http.StripPrefix("/sandbox", fake.Pages()))
	c, err := stripe.New(stripe.Config{Key: "sk_test_x", WebhookSecret: "w", URL: client.URL})
	if err != nil {
		t.Fatal(err)
	}
	out := outbox.New(d, c, slog.New(slog.DiscardHandler))
	in := events.New(d, c, slog.New(slog.DiscardHandler))
	p, err := payment.New(d, out, in, payment.Config{
		Currency:      "USD",
		DefaultMethod: "pm_card_visa",
		ReturnURL:     site + "/billing?returned=1",
		Sandbox:       true,
		Merchant:      statement.Party{Name: "Muster Test Ltd", Address: []string{"1 Test Street"}},
		Taxer:         tax.Flat{Rates: tax.EU()},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return out, in, p
}

func (b *browser) get(path string) (*http.Response, *goquery.Document) {
	b.t.Helper()
	res, err := b.http.Get(b.url + path)
	return b.page(res, err)
}

func (b *browser) post(path string, form url.Values) (*http.Response, *goquery.Document) {
	b.t.Helper()
	res, err := b.http.PostForm(b.url+path, form)
	return b.page(res, err)
}

func (b *browser) page(res *http.Response, err error) (*http.Response, *goquery.Document) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	doc, err := goquery.NewDocumentFromReader(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res, doc
}

func (b *browser) signUp() {
	b.t.Helper()
	_, doc := b.post("/signup", url.Values{
		"email":    {"mira@northlight.example"},
		"password": {"a long enough sentence"},
		"name":     {"northlight"},
	})
	if doc.Find(".who").Length() != 1 {
		b.t.Fatalf("not signed in: %s", doc.Find("main").Text())
	}
}

func TestSignUpInAndOut(t *testing.T) {
	t.Parallel()
	b := open(t)
	_, doc := b.post("/signup", url.Values{"email": {"mira@northlight.example"}, "password": {"short"}})
	if doc.Find("#password-e").Length() != 1 || doc.Find("#email").AttrOr("value", "") != "mira@northlight.example" {
		t.Fatalf("a short password is not told beside its field, or the form forgot: %s", doc.Find("form.form").Text())
	}
	b.signUp()
	if _, doc = b.get("/account"); !strings.Contains(doc.Find(".lede").Text(), "mira@northlight.example") {
		t.Error("the account page does not know who visits")
	}
	b.post("/signout", nil)
	res, _ := b.get("/account")
	if got := res.Request.URL; got.Path != "/signin" || got.Query().Get("next") != "/account" {
		t.Errorf("after signing out the account page leads to %s", got)
	}
	_, doc = b.post("/signin", url.Values{"email": {"mira@northlight.example"}, "password": {"not the password"}})
	if !strings.Contains(doc.Find("#password-e").Text(), "do not match") {
		t.Errorf("a wrong password is not told: %s", doc.Find("main").Text())
	}
	res, _ = b.post("/signin", url.Values{
		"email":    {"mira@northlight.example"},
		"password": {"a long enough sentence"},
		"next":     {"//evil.example/"},
	})
	if res.Request.URL.Host != strings.TrimPrefix(b.url, "http://") {
		t.Errorf("sent away to %s", res.Request.URL)
	}
}

func TestAPageThatIsNotThere(t *testing.T) {
	t.Parallel()
	res, doc := open(t).get("/no/such/page")
	if res.StatusCode != http.StatusNotFound || !strings.Contains(doc.Find("main").Text(), "Page not found") ||
		doc.Find("nav a").Length() == 0 {
		t.Errorf("%d %s", res.StatusCode, doc.Text())
	}
}

func TestPagesAreStrictAndWhole(t *testing.T) {
	t.Parallel()
	b := open(t)
	for _, path := range []string{"/", "/offers", "/signin", "/signup", "/pricing", "/cli", "/status", "/terms"} {
		res, doc := b.get(path)
		if res.StatusCode != http.StatusOK || !strings.Contains(res.Header.Get("Content-Security-Policy"),
			"script-src 'self'") {
			t.Errorf("%s: %d %v", path, res.StatusCode, res.Header)
		}
		if n := doc.Find("[style], script:not([src]), [onclick]").Length(); n != 0 {
			t.Errorf("%s: %d inline styles or scripts", path, n)
		}
		doc.Find("link[href], script[src]").Each(func(_ int, s *goquery.Selection) {
			u := s.AttrOr("href", s.AttrOr("src", ""))
			if res, err := b.http.Get(b.url + u); err != nil || res.StatusCode != http.StatusOK {
				t.Errorf("%s asks for %s: %v", path, u, err)
			} else {
				res.Body.Close()
			}
		})
		doc.Find("input:not([type=hidden]):not([type=checkbox]), select, textarea").Each(func(_ int, s *goquery.Selection) {
			if doc.Find(`label[for="`+s.AttrOr("id", "?")+`"]`).Length() == 0 {
				t.Errorf("%s: the field %q has no label", path, s.AttrOr("name", ""))
			}
		})
	}
}

func TestBudgetsOnThePage(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	res, doc := b.post("/billing/budgets", url.Values{"project": {"vision"}, "cap": {"1.2.3"}})
	if res.StatusCode != http.StatusUnprocessableEntity || doc.Find("#cap-e").Length() != 1 ||
		doc.Find("#project").AttrOr("value", "") != "vision" {
		t.Fatalf("%d: a bad cap is not told beside its field: %s", res.StatusCode, doc.Find("#budgets").Text())
	}
	_, doc = b.post("/billing/budgets", url.Values{"project": {"vision"}, "cap": {"120"}, "max_price_per_hour": {"8"}})
	if rows := doc.Find("#budgets tbody tr"); rows.Length() != 1 || !strings.Contains(rows.Text(), "vision") ||
		!strings.Contains(rows.Text(), "120.00") {
		t.Fatalf("%s", doc.Find("#budgets").Text())
	}
	_, doc = b.post(doc.Find("#budgets tbody form").AttrOr("action", ""), nil)
	if doc.Find("#budgets tbody tr").Length() != 0 {
		t.Error("it is still there")
	}
}

func TestAFormFromAnotherSiteIsRefused(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	req, err := http.NewRequest("POST", b.url+"/account/tokens", strings.NewReader("token_name=x&scope=read"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	res, _ := b.page(b.http.Do(req))
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", res.StatusCode)
	}
}

func TestTokenIsShownOnce(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	_, doc := b.post("/account/tokens", url.Values{"token_name": {"laptop"}, "scope": {"read", "clusters"}})
	secret := strings.TrimSpace(doc.Find("#new-token").Text())
	if !strings.HasPrefix(secret, account.TokenPrefix) {
		t.Fatalf("no token: %s", doc.Find("#tokens").Text())
	}
	_, doc = b.get("/account")
	if html, _ := doc.Html(); strings.Contains(html, secret) || !strings.Contains(html, "laptop") {
		t.Error("the token is shown again, or not listed")
	}
}

func TestEmptyPagesSayWhatToDo(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	for path, want := range map[string]string{
		"/clusters":          "No clusters yet",
		"/hosts":             "No hosts yet",
		"/billing":           "Nothing billed",
		"/billing/statement": "Nothing billed in this time",
		"/account":           "API tokens",
	} {
		res, doc := b.get(path)
		if text := doc.Find("main").Text(); res.StatusCode != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", path, res.StatusCode, text)
		}
	}
	_, doc := b.get("/clusters")
	if doc.Find(".firststeps li").Length() != 4 || doc.Find(".firststeps .btn.primary").AttrOr("href", "") !=
		"/billing" {
		t.Errorf("the first step of a newcomer is %s", doc.Find(".firststeps").Text())
	}
	b.post("/account/ssh-keys", url.Values{
		"name":       {"laptop"},
		"public_key": {"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl mira"},
	})
	if _, doc = b.get("/clusters"); doc.Find(".firststeps li.s-ok").Length() != 1 {
		t.Errorf("a step that is done is not ticked: %s", doc.Find(".firststeps").Text())
	}
	for _, path := range []string{"/clusters/cl_00000000000000000000000000", "/clusters/nonsense",
		"/hosts/host_7zzzzzzzzzzzzzzzzzzzzzzzzz"} {
		if res, _ := b.get(path); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
}

func TestTermsOfAHostAreTheOwnersOnly(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	res, _ := b.post("/hosts/host_7zzzzzzzzzzzzzzzzzzzzzzzzz/terms", url.Values{
		"price_per_gpu_hour": {"1.00"},
		"min_gpus":           {"1"},
		"max_hours":          {""},
	})
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("another's host: %d", res.StatusCode)
	}
}

// failed is the error of a use case, whose result the test does not need.
func failed[T any](_ T, _ idem.Outcome, err error) error { return err }
