package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/PuerkitoBio/goquery"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// All about an organisation on one page: its fee is changed, payouts are stopped, go on and are made, each with a
// reason.
func TestAdminOrg(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	org := b.org()
	page := "/admin/orgs/" + org.String()
	for q, want := range map[string]int{"": 1, "mira@": 1, "NORTHL": 1, org.String(): 1, "nobody": 0} {
		if _, doc := b.get("/admin/orgs?" + url.Values{"q": {q}}.Encode()); doc.Find("#orgs tbody tr").Length() != want {
			t.Errorf("%q: %s", q, doc.Find("main").Text())
		}
	}
	once := func(form string) string {
		_, doc := b.get(page)
		return doc.Find(form+" input[name=once]").AttrOr("value", "")
	}
	send := func(path, form string, fields url.Values) (*http.Response, *goquery.Document) {
		fields.Set("once", once(form))
		return b.post(page+path, fields)
	}
	for _, bad := range []url.Values{{
		"fee_percent": {"ten"},
		"reason":      {"x"},
	}, {"fee_percent": {"100.0001"}, "reason": {"x"}}, {"fee_percent": {"1.00001"}, "reason": {"x"}},
		{"fee_percent": {"5"}, "reason": {" "}}} {
		if res, doc := send("/fee", "#set-fee", bad); res.StatusCode != http.StatusUnprocessableEntity ||
			doc.Find("#set-fee .err").Length() != 1 || doc.Find("#fee_percent").AttrOr("value", "") != bad.Get("fee_percent") {
			t.Errorf("%v: %s %s", bad, res.Status, doc.Find("#set-fee").Text())
		}
	}
	if res, doc := send("/fee", "#set-fee", url.Values{
		"fee_percent": {"4.5"},
		"reason":      {"a large fleet"},
	}); res.StatusCode != http.StatusOK || doc.Find("#seller[open] #fee_percent").AttrOr("value", "") != "4.5" ||
		!strings.Contains(doc.Find("#trail").Text(), "a large fleet") {
		t.Errorf("%s %s", res.Status, doc.Find("main").Text())
	}
	if _, doc := b.get(page); doc.Find("#pay").Length() != 0 || !strings.Contains(doc.Find("#cannot-pay").Text(),
		"no payout account") {
		t.Error(doc.Find("#account").Text())
	}

	form, _ := b.post("/payouts/account", url.Values{"country": {"de"}})
	b.post(form.Request.URL.Path, url.Values{"answer": {"all"}})
	b.post("/billing/topups", url.Values{"amount": {"100.00"}})
	b.earn("a", 25*money.Unit, false)
	if res, doc := send("/stop", "#stop", url.Values{
		"stop":   {"yes"},
		"reason": {"under suspicion"},
	}); res.StatusCode != http.StatusOK || !strings.Contains(doc.Find("#account .callout").Text(), "under suspicion") ||
		doc.Find("#pay").Length() != 0 {
		t.Fatalf("%s %s", res.Status, doc.Find("#account").Text())
	}
	if res, doc := b.post(page+"/pay", url.Values{"reason": {"now"}}); res.StatusCode != http.StatusConflict ||
		!strings.Contains(doc.Find("main").Text(), "nothing is paid") {
		t.Errorf("%s %s", res.Status, doc.Find("main").Text())
	}
	if res, doc := send("/stop", "#stop", url.Values{
		"stop":   {"no"},
		"reason": {"cleared"},
	}); res.StatusCode != http.StatusOK || doc.Find("#account .callout").Length() != 0 {
		t.Fatalf("%s %s", res.Status, doc.Find("#account").Text())
	}
	if res, doc := b.post("/admin/sending", url.Values{
		"pause":  {"yes"},
		"reason": {"payouts look wrong"},
	}); res.StatusCode != http.StatusOK ||
		!strings.Contains(doc.Find("#sending .callout").Text(), "payouts look wrong") ||
		!strings.Contains(doc.Find("#due").Text(), "payouts look wrong") {
		t.Fatalf("%s %s", res.Status, doc.Find("main").Text())
	}
	if res, doc := b.post("/admin/sending", url.Values{
		"pause":  {"no"},
		"reason": {"checked"},
	}); res.StatusCode != http.StatusOK || doc.Find("#sending .callout").Length() != 0 {
		t.Fatalf("%s %s", res.Status, doc.Find("main").Text())
	}
	if _, doc := b.get("/admin/payouts"); !strings.Contains(doc.Find("#run").Text(), "25.00 USD") ||
		doc.Find("#due tbody tr").Length() != 1 {
		t.Errorf("%s", doc.Find("main").Text())
	}
	if res, doc := send("/pay", "#pay", url.Values{"reason": {"asked by phone"}}); res.StatusCode != http.StatusOK ||
		!strings.Contains(doc.Find("#payouts tbody").Text(), "25.00") {
		t.Fatalf("%s %s", res.Status, doc.Find("main").Text())
	}
	if _, doc := b.get("/admin/audit?" + url.Values{
		"action": {"payout"},
		"org":    {org.String()},
	}.Encode()); doc.Find("#acts tbody tr").Length() != 4 || !strings.Contains(doc.Find("#acts").Text(),
		"asked by phone") {
		t.Error(doc.Find("#acts").Text())
	}
	_, doc := b.get(page)
	sound(t, page, doc)
}

// The page of an organisation shows ten clusters, in words, and all of them on request.
func TestAdminOrg_ManyClusters(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	org := b.org()
	for range 12 {
		b.exec(`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node, rate,
			currency, reason, ended_at) SELECT $1, org_id, user_id, 'old', '{}', 'x/y:1', 'released', 1, 1, 0,
			'USD', 'completed', now() FROM membership`, id.New[id.Cluster]())
	}
	page := "/admin/orgs/" + org.String()
	_, doc := b.get(page)
	sound(t, page, doc)
	if n := doc.Find("#clusters tbody tr").Length(); n != 10 {
		t.Errorf("%d clusters at first", n)
	}
	if got := doc.Find("#clusters tbody tr").First().Text(); !strings.Contains(got, "Completed") {
		t.Errorf("a cluster is shown as %q", got)
	}
	_, doc = b.get(doc.Find("#clusters header a").AttrOr("href", ""))
	if n := doc.Find("#clusters tbody tr").Length(); n != 12 {
		t.Errorf("%d clusters of 12", n)
	}
}

// The page of an organisation that only rents shows nothing of a seller until it is asked for.
func TestAdminOrg_OfARenter(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	page := "/admin/orgs/" + b.org().String()
	_, doc := b.get(page)
	if doc.Find("#payouts, #hosts, #redemptions, #payable").Length() != 0 ||
		doc.Find("details#seller:not([open]) #set-fee").Length() != 1 {
		t.Errorf("a renter: %s", doc.Find("main").Text())
	}
	b.sell(2)
	if _, doc = b.get(page); doc.Find("#payouts, #hosts, #payable").Length() != 3 || doc.Find("#seller").Length() != 0 {
		t.Errorf("with hosts: %s", doc.Find("main").Text())
	}
}
