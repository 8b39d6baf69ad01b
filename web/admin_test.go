package web_test

import (
	"context"
	"encoding/csv"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/PuerkitoBio/goquery"
	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest/meteringtest"
)

// adminGets are the admin pages, adminPosts their forms, for any organisation.
func adminPaths(org string) (gets, posts []string) {
	return []string{"/admin", "/admin/orgs", "/admin/orgs/" + org, "/admin/payouts", "/admin/reviews",
			"/admin/reviews?all=1", "/admin/promo", "/admin/audit", "/admin/books", "/admin/tax", "/admin/documents",
			"/admin/gangs", "/admin/gangs?days=7", "/admin/contests"},
		[]string{"/admin/orgs/" + org + "/fee", "/admin/orgs/" + org + "/pay", "/admin/orgs/" + org + "/stop",
			"/admin/orgs/" + org + "/reverse", "/admin/orgs/" + org + "/unfreeze", "/admin/orgs/" + org + "/reviews",
			"/admin/orgs/" + org + "/write-off", "/admin/orgs/" + org + "/bank-payment", "/admin/orgs/" + org +
				"/release-refund", "/admin/orgs/" + org + "/forgive-disputes",
			"/admin/payouts", "/admin/sending", "/admin/reviews", "/admin/promo", "/admin/promo/SOME-CODE/disable", "/admin/tax",
			"/admin/gangs/credits", "/admin/contests"}
}

func (b *browser) org() id.Org {
	b.t.Helper()
	var org id.Org
	if err := b.db.Pool.QueryRow(b.t.Context(),
		"SELECT o.id FROM org o JOIN membership m ON m.org_id = o.id LIMIT 1").Scan(&org); err != nil {
		b.t.Fatal(err)
	}
	return org
}

func (b *browser) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

// earn is money of another organisation for the visitor's hosts, past the holdback; linked: one person is in both.
func (b *browser) earn(key string, n money.Nano, linked bool) (renter id.Org) {
	b.t.Helper()
	org := b.org()
	renter = id.New[id.Org]()
	b.exec("INSERT INTO org (id, name, personal) VALUES ($1, $2, false)", renter, "Renter "+key)
	if linked {
		b.exec("INSERT INTO membership (org_id, user_id, role) SELECT $1, user_id, 'member' FROM membership WHERE "+
			"org_id = $2", renter, org)
	}
	if err := b.db.InTx(b.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind: "topup",
			Key:  key,
			Transfers: []ledger.Transfer{
				{
					Debit:  ledger.StripeClearing("USD"),
					Credit: ledger.Wallet(renter, "USD"),
					Amount: n,
				}, {Debit: ledger.Wallet(renter, "USD"), Credit: ledger.HostPending(org, "USD"), Amount: n}},
		})
		return err
	}); err != nil {
		b.t.Fatal(err)
	}
	if _, err := payout.Mature(b.t.Context(), b.db, -time.Hour); err != nil {
		b.t.Fatal(err)
	}
	return renter
}

// sound asserts what every page holds to: no inline style or script, every field with a label, no id twice.
func sound(t *testing.T, path string, doc *goquery.Document) {
	t.Helper()
	if n := doc.Find("[style], script:not([src])").Length(); n != 0 {
		t.Errorf("%s: %d inline styles or scripts", path, n)
	}
	seen := map[string]bool{}
	for _, x := range doc.Find("main [id]").EachIter() {
		name := x.AttrOr("id", "")
		if seen[name] {
			t.Errorf("%s: the id %s is there twice", path, name)
		}
		seen[name] = true
	}
	for _, x := range doc.Find("main input:not([type=hidden]), main select, main textarea").EachIter() {
		if doc.Find(`label[for="`+x.AttrOr("id", "")+`"]`).Length() == 0 && x.Closest("label").Length() == 0 {
			t.Errorf("%s: the field %s has no label", path, x.AttrOr("name", ""))
		}
	}
	for _, x := range doc.Find("main table").EachIter() {
		if x.Find("caption").Length() != 1 {
			t.Errorf("%s: a table without a caption", path)
		}
	}
	if n := doc.Find("h1").Length(); n != 1 {
		t.Errorf("%s: %d headings", path, n)
	}
}

func TestAdmin_Access(t *testing.T) {
	t.Parallel()
	b := open(t)
	gets, posts := adminPaths(id.New[id.Org]().String())
	refused := func(who string) {
		t.Helper()
		for _, path := range gets {
			if res, _ := b.get(path); res.StatusCode != http.StatusNotFound {
				t.Errorf("%s opens %s: %s", who, path, res.Status)
			}
		}
		for _, path := range posts {
			if res, _ := b.post(path, url.Values{"reason": {"x"}}); res.StatusCode != http.StatusNotFound {
				t.Errorf("%s posts to %s: %s", who, path, res.Status)
			}
		}
	}
	refused("nobody")
	b.signUp()
	refused("a renter")
	b.makeAdmin()
	gets, _ = adminPaths(b.org().String())
	for _, path := range gets {
		res, doc := b.get(path)
		if res.StatusCode != http.StatusOK || doc.Find(`.nav a[href="/admin"][aria-current=page]`).Length() != 1 ||
			doc.Find(".subnav [aria-current=page]").Length() != 1 {
			t.Errorf("an admin opens %s: %s", path, res.Status)
		}
		sound(t, path, doc)
	}
	for _, path := range []string{"/admin/orgs/" + id.New[id.Org]().String(), "/admin/orgs/x", "/admin/orgs?after=x",
		"/admin/payouts?after=x"} {
		if res, _ := b.get(path); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	if res, doc := b.get("/admin/audit?org=x"); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#org-e").Length() != 1 {
		t.Error(res.Status)
	}
}

// The overview shows the fleet as it is now, and this week's demand beside last week's.
func TestAdmin_FleetTotals(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	b.sell(4)
	g := b.gangOf(true) // two more hosts, without GPUs, and two clusters
	b.exec("UPDATE cluster SET state = 'failed', ended_at = clock_timestamp() WHERE id = $1", g.cluster)
	b.exec(`INSERT INTO gpu_claim (id, gpu_id, host_id, kind, ref)
		SELECT gen_random_uuid(), id, host_id, 'lease', $1 FROM gpu LIMIT 2`, g.mine.ID)
	now := time.Now()
	for age, mail := range map[time.Duration]string{8: "a@x.test", 13: "b@x.test", 15: "c@x.test"} {
		b.exec("INSERT INTO app_user (id, email, name, password_hash) VALUES ($1, $2, '', '')",
			id.From[id.User](now.Add(-age*24*time.Hour)), mail)
	}
	_, doc := b.get("/admin")
	got := map[string]string{}
	doc.Find("#fleet > div").Each(func(_ int, d *goquery.Selection) {
		got[d.Find("dt").Text()] = d.Find(".readout-2").Text() + " " + d.Find(".hint").Text()
	})
	want := map[string]string{
		"Hosts connected":         "1 of 3",
		"GPUs rented":             "2 of 4, 50 %",
		"Clusters running":        "0 1 starting",
		"Sign-ups, 7 days":        "1 2 the week before",
		"Clusters rented, 7 days": "2 0 the week before",
		"Of these failed":         "1 0 the week before",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The overview counts what needs attention and links to it.
func TestAdmin_Queues(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	_, doc := b.get("/admin")
	if doc.Find("#calm:not([open]) li").Length() < 6 || doc.Find("#queues > ul").Length() != 0 ||
		!strings.Contains(doc.Find("#queues").Text(), "Nothing needs attention") {
		t.Error(doc.Find("#queues").Text())
	}
	b.earn("a", 30*money.Unit, true)
	b.earn("b", 12*money.Unit, false)
	_, doc = b.get("/admin")
	if doc.Find("#queues > ul li").Length() != 1 {
		t.Errorf("what needs attention: %s", doc.Find("#queues > ul").Text())
	}
	if q := doc.Find(`#queues > ul a[href="/admin/reviews"].s-warn`); q.Find(".n").Text() != "1" ||
		!strings.Contains(q.Text(), "30.00 USD") {
		t.Error(doc.Find("#queues").Text())
	}
	if text := doc.Find("#holdings").Text(); !strings.Contains(text, "Operators, payable12.00") ||
		!strings.Contains(text, "At Stripe42.00") || doc.Find("#holdings svg[role=img]").Length() != 2 {
		t.Error(text)
	}
	sound(t, "/admin", doc)
}

// A review is decided once, with a reason, from its queue or from the operator's page.
func TestAdminReviews_Decide(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	renter := b.earn("a", 30*money.Unit, true)
	_, doc := b.get("/admin/reviews")
	sound(t, "/admin/reviews", doc)
	entry := doc.Find("#reviews .entry")
	if text := entry.Text(); entry.Length() != 1 || !strings.Contains(text, "30.00 USD") ||
		!strings.Contains(text, "one person in both") || !strings.Contains(text, "Renter a") {
		t.Fatal(text)
	}
	form := url.Values{
		"review":   {entry.AttrOr("id", "")},
		"decision": {"refuse"},
		"once":     {entry.Find("input[name=once]").AttrOr("value", "")},
	}
	if res, doc := b.post("/admin/reviews", form); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#reviews .err").Length() != 1 {
		t.Fatalf("without a reason: %s %s", res.Status, doc.Find("main").Text())
	}
	form.Set("reason", "a stolen card")
	for range 2 { // the same form, sent twice
		if res, doc := b.post("/admin/reviews", form); res.StatusCode != http.StatusOK ||
			doc.Find("#reviews .entry").Length() != 0 || !strings.Contains(doc.Find(".callout").Text(), "Refused") {
			t.Fatalf("%s %s", res.Status, doc.Find("main").Text())
		}
	}
	form.Del("once")
	if res, doc := b.post("/admin/reviews", form); res.StatusCode != http.StatusConflict {
		t.Errorf("decided twice: %s %s", res.Status, doc.Find("main").Text())
	}
	if _, doc := b.get("/admin/reviews?all=1"); !strings.Contains(doc.Find("#reviews").Text(), "30.00 refused") {
		t.Error(doc.Find("main").Text())
	}
	page := "/admin/orgs/" + renter.String()
	if _, doc := b.get(page); !strings.Contains(doc.Find("#reviews").Text(), "a stolen card") {
		t.Error(doc.Find("main").Text())
	}
	if res, _ := b.post(page+"/reviews", url.Values{
		"review":   {"x"},
		"decision": {"release"},
		"reason":   {"x"},
	}); res.StatusCode != http.StatusConflict {
		t.Error(res.Status)
	}
}

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

// A run pays everybody who can be paid, once.
func TestAdminPayouts_Run(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	form, _ := b.post("/payouts/account", url.Values{"country": {"de"}})
	b.post(form.Request.URL.Path, url.Values{"answer": {"all"}})
	b.post("/billing/topups", url.Values{"amount": {"100.00"}})
	b.earn("a", 25*money.Unit, false)
	_, doc := b.get("/admin/payouts")
	sound(t, "/admin/payouts", doc)
	run := url.Values{"once": {doc.Find("#run input[name=once]").AttrOr("value", "")}}
	if res, doc := b.post("/admin/payouts", run); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#run .err").Length() != 1 {
		t.Fatal(res.Status, doc.Find("#run").Text())
	}
	run.Set("reason", "asked for")
	for range 2 { // the same form, sent twice
		if res, doc := b.post("/admin/payouts", run); res.StatusCode != http.StatusOK ||
			!strings.Contains(doc.Find(".callout").Text(), "1 payouts were made") ||
			doc.Find("#payouts tbody tr").Length() != 1 {
			t.Fatal(res.Status, doc.Find("main").Text())
		}
	}
}

func TestAdminPromo(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	_, doc := b.get("/admin/promo")
	form := url.Values{
		"once":   {doc.Find("#new input[name=once]").AttrOr("value", "")},
		"code":   {"short"},
		"amount": {"five"},
		"uses":   {"x"},
	}
	if res, doc := b.post("/admin/promo", form); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#new .err").Length() != 2 || doc.Find("#code").AttrOr("value", "") != "short" {
		t.Error(res.Status, doc.Find("#new").Text())
	}
	form.Set("amount", "5.00")
	form.Set("uses", "3")
	if res, doc := b.post("/admin/promo", form); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#code-e").Length() != 1 || doc.Find("#reason-create-e").Length() != 1 {
		t.Error(res.Status, doc.Find("#new").Text())
	}
	form.Set("code", "welcome-2027")
	form.Set("reason", "a fair")
	form.Set("ends", "2099-12-31")
	for range 2 { // the same form, sent twice
		if res, doc := b.post("/admin/promo", form); res.StatusCode != http.StatusOK ||
			doc.Find("#codes .entry").Length() != 1 || !strings.Contains(doc.Find("#codes").Text(), "0 of 3") {
			t.Fatal(res.Status, doc.Find("main").Text())
		}
	}
	b.exec("UPDATE app_user SET email_verified_at = clock_timestamp()")
	b.post("/billing/promo", url.Values{"promo_code": {"welcome-2027"}})
	_, doc = b.get("/admin/promo?code=WELCOME-2027")
	sound(t, "/admin/promo", doc)
	if doc.Find("#used tbody tr").Length() != 1 || !strings.Contains(doc.Find("#used").Text(), "northlight") ||
		!strings.Contains(doc.Find("#codes").Text(), "1 of 3") {
		t.Error(doc.Find("main").Text())
	}
	end := url.Values{}
	if res, doc := b.post("/admin/promo/WELCOME-2027/disable", end); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#codes .err").Length() != 1 {
		t.Error(res.Status, doc.Find("#codes").Text())
	}
	end.Set("reason", "posted in public")
	if res, doc := b.post("/admin/promo/WELCOME-2027/disable", end); res.StatusCode != http.StatusOK ||
		doc.Find("#codes form").Length() != 0 || !strings.Contains(doc.Find("#codes").Text(), "Over") {
		t.Error(res.Status, doc.Find("#codes").Text())
	}
	if _, doc := b.get("/admin/audit?q=posted+in+public"); doc.Find("#acts tbody tr").Length() != 1 {
		t.Error(doc.Find("main").Text())
	}
}

// Frozen money moves again from its operator's page too.
func TestFrozenMoneyOnAnOrganisationsPage(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	org, _, _ := b.charge()
	lease := meteringtest.Frozen(t, b.db, org, org, "USD").String()
	page := "/admin/orgs/" + org.String()
	_, doc := b.get(page)
	sound(t, page, doc)
	form := url.Values{
		"lease": {doc.Find("#frozen input[name=lease]").AttrOr("value", "")},
		"once":  {doc.Find("#frozen input[name=once]").AttrOr("value", "")},
	}
	if form.Get("lease") != lease {
		t.Fatal(doc.Find("main").Text())
	}
	if res, doc := b.post(page+"/unfreeze", form); res.StatusCode != http.StatusUnprocessableEntity ||
		doc.Find("#frozen .err").Length() != 1 {
		t.Errorf("%s %s", res.Status, doc.Find("#frozen").Text())
	}
	form.Set("reason", "restored from a backup")
	if res, doc := b.post(page+"/unfreeze", form); res.StatusCode != http.StatusOK || doc.Find("#frozen").Length() != 0 {
		t.Errorf("%s %s", res.Status, doc.Find("main").Text())
	}
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

// The audit log gives the whole date of each act, and offers the acts that it knows.
func TestAdminAudit_DatesAndActs(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	_, doc := b.get("/admin/audit")
	if got := doc.Find("#acts .c-time").First().Text(); !strings.Contains(got, time.Now().UTC().Format(" Jan 2006 ")[4:]) {
		t.Errorf("an act happened at %q", got)
	}
	if doc.Find(`#acts-known option[value="billing.topup"]`).Text() != "Added credit" {
		t.Error("the form does not offer the acts")
	}
}

// Sessions, clusters and organisations are named in the audit log, and what is found can be taken as a file.
func TestAdminAudit_NamesAndCSV(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	g := b.gangOf(true)
	b.exec(`INSERT INTO audit_event (id, org_id, action, object, detail, address) VALUES
		(gen_random_uuid(), $1, 'cluster.release', $2, '{"reason": "=1+1"}', '')`, b.org(), g.cluster.String())
	row := func(action string) *goquery.Selection {
		_, doc := b.get("/admin/audit?action=" + action)
		return doc.Find("#acts tbody tr").First().Find(".c-on")
	}
	if on := row("cluster.release"); !strings.Contains(on.Text(), "train") || on.Find(".sub2").AttrOr("title", "") !=
		g.cluster.String() {
		t.Errorf("a cluster is called %q", on.Text())
	}
	if on := row("session.open").Text(); !strings.Contains(on, "mira@northlight.example, ") {
		t.Errorf("a session is called %q", on)
	}
	_, doc := b.get("/admin/audit?action=cluster.release")
	res, err := b.http.Get(b.url + doc.Find(`a[href^="/admin/audit.csv"]`).AttrOr("href", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	rows, err := csv.NewReader(res.Body).ReadAll()
	if err != nil || len(rows) != 2 || rows[1][1] != "cluster.release" || rows[1][5] != g.cluster.String() ||
		rows[1][6] != "train" || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/csv") {
		t.Errorf("%v %v", rows, err)
	}
	b.post("/signout", nil)
	if res, _ := b.get("/admin/audit.csv"); res.StatusCode != http.StatusNotFound {
		t.Errorf("for everybody: %s", res.Status)
	}
}

// What the platform has lost is drawn where it is missing: claims exceed the assets by it.
func TestAdmin_LossIsDrawn(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.makeAdmin()
	b.earn("a", 30*money.Unit, false)
	if _, doc := b.get("/admin"); doc.Find("#holdings .short").Length() != 0 {
		t.Error("a loss is drawn where there is none")
	}
	if err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "compensation", Key: "loss", Transfers: []ledger.Transfer{{
			Debit: ledger.Fee("USD"), Credit: ledger.Wallet(b.org(), "USD"), Amount: 10 * money.Unit}}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	_, doc := b.get("/admin")
	short := doc.Find("#holdings .holds rect.short")
	if short.Length() != 1 || short.AttrOr("x", "") != "750.00" || short.AttrOr("width", "") != "250.00" ||
		!strings.Contains(doc.Find("#holdings").Text(), "Not covered: the platform's loss10.00") {
		t.Errorf("%d at %s, %s wide: %s", short.Length(), short.AttrOr("x", ""), short.AttrOr("width", ""),
			doc.Find("#holdings").Text())
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

// The bar of an admin who neither pays nor earns shows no wallet of zeros; that of a renter does.
func TestTopBar_OfAnAdmin(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	if _, doc := b.get("/account"); doc.Find(".walletbar dt").Length() != 3 {
		t.Errorf("a renter: %s", doc.Find(".walletbar").Text())
	}
	b.makeAdmin()
	if _, doc := b.get("/admin"); doc.Find(".walletbar dt").Length() != 0 || doc.Find(".walletbar").Length() != 1 {
		t.Errorf("an admin: %s", doc.Find(".walletbar").Text())
	}
}
