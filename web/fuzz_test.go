package web_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"

	"github.com/musterhq/muster/internal/testing/apifuzz"
)

// crawler visits pages with random parameters and sends the forms it finds there with random values.
type crawler struct {
	*browser
	g     *apifuzz.Generator
	paths []string
	forms []form
	known map[string]bool
}

type form struct {
	action string
	get    bool
	fields url.Values // as the page filled them
}

const maxKnown = 400 // paths, and forms

// learn takes links and forms from a page.
func (c *crawler) learn(doc *goquery.Document) {
	doc.Find("a[href^='/']").Each(func(_ int, a *goquery.Selection) { c.addPath(a.AttrOr("href", "")) })
	doc.Find("form").Each(func(_ int, f *goquery.Selection) {
		action, fields := f.AttrOr("action", ""), url.Values{}
		if !strings.HasPrefix(action, "/") || strings.HasPrefix(action, "/signout") || strings.HasPrefix(action, "/sandbox") {
			return
		}
		f.Find("input[name],select[name],textarea[name],button[name]").Each(func(_ int, in *goquery.Selection) {
			fields.Add(in.AttrOr("name", ""), in.AttrOr("value", in.Text()))
		})
		key := action + "?" + strings.Join(slices.Sorted(keys(fields)), "&")
		if c.known[key] || len(c.forms) >= maxKnown {
			return
		}
		c.known[key] = true
		c.forms = append(c.forms, form{action, strings.EqualFold(f.AttrOr("method", "get"), "get"), fields})
	})
}

func keys(v url.Values) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range v {
			if !yield(k) {
				return
			}
		}
	}
}

func (c *crawler) addPath(p string) {
	p, _, _ = strings.Cut(p, "#")
	if p == "" || c.known[p] || len(c.paths) >= maxKnown || strings.HasPrefix(p, "/static") ||
		strings.HasPrefix(p, "/api") {
		return
	}
	c.known[p] = true
	c.paths = append(c.paths, p)
}

// next is a random request: a page, or a form.
func (c *crawler) next() (method, target string, values url.Values) {
	if len(c.forms) > 0 && c.g.Intn(2) == 0 {
		f := c.forms[c.g.Intn(len(c.forms))]
		values = url.Values{}
		for name, v := range f.fields {
			switch c.g.Intn(10) {
			case 0: // left out
			case 1, 2, 3:
				values.Set(name, c.g.Text(name))
			default:
				values[name] = v
			}
		}
		if f.get {
			return http.MethodGet, f.action + "?" + values.Encode(), nil
		}
		return http.MethodPost, f.action, values
	}
	p := c.paths[c.g.Intn(len(c.paths))]
	path, query, _ := strings.Cut(p, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		values = url.Values{}
	}
	for name := range values {
		if c.g.Intn(3) == 0 {
			values.Set(name, c.g.Text(name))
		}
	}
	if c.g.Intn(4) == 0 { // parameters that pages take, whether they link them or not
		name := []string{"q", "after", "sort", "org", "from", "to", "group", "month", "kind", "year", "id", "view", "node",
			"tail", "limit"}[c.g.Intn(15)]
		values.Set(name, c.g.Text(name))
	}
	if c.g.Intn(8) == 0 { // another last part: an identifier that is none
		path = path[:strings.LastIndexByte(path, '/')+1] + url.PathEscape(c.g.Text("id"))
	}
	if q := values.Encode(); q != "" {
		path += "?" + q
	}
	return http.MethodGet, path, nil
}

// TestRandomVisits sends random requests and forms to every page that can be found, as one user who is renter, host
// operator and admin, and without signing in. No answer may be an internal error.
func TestRandomVisits(t *testing.T) {
	t.Parallel()
	visits, seed := fuzzNumber(t, "MUSTER_FUZZ_VISITS", 1000), fuzzNumber(t, "MUSTER_FUZZ_SEED", int(time.Now().Unix()))
	b := open(t)
	b.signUp()
	b.makeAdmin()
	b.sell(8)
	b.charge()
	c := &crawler{
		browser: b,
		g:       apifuzz.New(nil, &apifuzz.Memory{}, uint64(seed), func(string, string) bool { return true }),
		known:   map[string]bool{},
	}
	for _, p := range []string{"/", "/estimate", "/pricing", "/status", "/offers", "/offers/filter", "/clusters",
		"/billing", "/billing/statement",
		"/billing/statement.csv", "/billing/invoices",
		"/hosts", "/hosts/statement", "/hosts/statement.csv", "/payouts", "/notices", "/wallet-bar", "/account",
		"/account/trail",
		"/admin", "/admin/orgs", "/admin/payouts",
		"/admin/reviews", "/admin/tax", "/admin/promo", "/admin/audit", "/admin/books", "/admin/books/entries",
		"/admin/agents", "/signin", "/signup"} {
		c.addPath(p)
	}
	stranger := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	failed, refused := 0, 0
	for n := range visits {
		method, target, values := c.next()
		client := b.http
		if n%10 == 0 {
			client = stranger
		}
		status, doc := c.visit(client, method, target, values)
		switch {
		case status >= 500 && status != http.StatusServiceUnavailable:
			failed++
			t.Errorf("seed %d, visit %d: %s %s %q: status %d", seed, n, method, target, values, status)
		case status >= 400:
			refused++
		case doc != nil && client == b.http:
			c.learn(doc)
		}
		if failed >= 20 {
			break
		}
	}
	t.Logf("%d visits of seed %d to %d pages and %d forms, %d refused", visits, seed, len(c.paths), len(c.forms), refused)
	if len(c.paths) < 30 || len(c.forms) < 20 {
		t.Errorf("found %d pages and %d forms: the crawler misses most", len(c.paths), len(c.forms))
	}
}

// visit is one request; 0 for one that was cut off, as a live page is.
func (c *crawler) visit(client *http.Client, method, target string, values url.Values) (int, *goquery.Document) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.url+target, strings.NewReader(values.Encode()))
	if err != nil {
		return 0, nil // a path that no client sends
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := client.Do(req)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "redirects") {
			c.t.Errorf("%s %s: %v", method, target, err)
		}
		return 0, nil
	}
	defer res.Body.Close()
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
		return res.StatusCode, nil
	}
	doc, err := goquery.NewDocumentFromReader(res.Body)
	if err != nil {
		return res.StatusCode, nil
	}
	return res.StatusCode, doc
}

func fuzzNumber(t *testing.T, name string, or int) int {
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
