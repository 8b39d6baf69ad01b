package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestVisitorsSeeWhatItIsAndWhatItCosts(t *testing.T) {
	t.Parallel()
	if _, doc := open(t).get("/"); !strings.Contains(doc.Find("#prices").Text(), "No GPU is free") {
		t.Errorf("an empty market: %s", doc.Find("#prices").Text())
	}
	b := open(t)
	b.signUp()
	b.sell(4)
	b.post("/signout", nil)
	for _, path := range []string{"/", "/pricing"} {
		_, doc := b.get(path)
		row := doc.Find("table").First().Find("tbody tr")
		if row.Length() != 1 || !strings.Contains(row.Text(), "2.00") || !strings.Contains(row.Text(), "H100") {
			t.Errorf("%s: prices %q", path, row.Text())
		}
		_, offers := b.get(row.Find("a").AttrOr("href", ""))
		if offers.Find(".fold-offers tbody tr").Length() != 1 {
			t.Errorf("%s: the link leads to %s", path, offers.Find("main").Text())
		}
	}
	_, doc := b.get("/")
	if text := strings.Join(strings.Fields(doc.Find("#from").Text()), " "); text !=
		"4 GPUs are free now, from 2.00 USD per GPU-hour, all fees included." {
		t.Errorf("the front page says %q", text)
	}
	if doc.Find("svg.howpic[role=img][aria-label]").Length() != 1 || doc.Find(".howsteps li").Length() != 4 {
		t.Error("the front page does not show how a rental runs")
	}
	if at := doc.Find("#prices [hx-get]").AttrOr("hx-get", ""); at != "/prices" {
		t.Errorf("prices are fetched again from %q", at)
	}
	if _, part := b.get("/prices"); part.Find("tbody tr").Length() != 1 || part.Find("nav").Length() != 0 {
		t.Error("the prices alone are not the table alone")
	}
	for _, name := range []string{"/docs/api", "/cli", "/pricing", "/status", "/terms", "/privacy"} {
		if doc.Find(`footer a[href="`+name+`"]`).Length() != 1 {
			t.Errorf("the footer has no link to %s", name)
		}
		if res, doc := b.get(name); res.StatusCode != http.StatusOK || doc.Find("h1").Length() != 1 {
			t.Errorf("%s: %d", name, res.StatusCode)
		}
	}
}

func TestAnEstimateNeedsNoAccountAndClaimsNothing(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(4)
	b.post("/signout", nil)
	_, doc := b.get("/")
	form := doc.Find(`form[action="/estimate"]`)
	q := form.Find("option").Last().AttrOr("value", "")
	_, doc = b.get("/estimate?" + url.Values{"nodes": {"1"}, "gpus": {"2"}, "q": {q}}.Encode())
	if text := doc.Find("#estimate").Text(); !strings.Contains(text, "4.00") ||
		!strings.Contains(text, "nothing is held") {
		t.Fatalf("%s", doc.Find("main").Text())
	}
	if doc.Find("#gpus").AttrOr("value", "") != "2" || doc.Find("#q").AttrOr("value", "") != q {
		t.Error("the form is not kept")
	}
	var claims, quotes int
	err := b.db.Pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM gpu_claim), (SELECT count(*) FROM quote)").
		Scan(&claims, &quotes)
	if err != nil || claims != 0 || quotes != 0 {
		t.Errorf("%d claims, %d quotes, %v", claims, quotes, err)
	}
	res, doc := b.post("/estimate", url.Values{"nodes": {"3"}, "gpus": {"4"}, "env": {"SECRET=1"}})
	if res.StatusCode != http.StatusConflict || doc.Find(".explain").Length() != 1 || res.Request.URL.RawQuery != "" {
		t.Errorf("nothing fits: %d %s %s", res.StatusCode, res.Request.URL, doc.Find("main").Text())
	}
	for range 40 {
		res, doc = b.get("/estimate?gpus=1")
	}
	if res.StatusCode != http.StatusTooManyRequests || !strings.Contains(doc.Find("#spec").Text(), "Too many estimates") {
		t.Errorf("the 40th estimate: %d %s", res.StatusCode, doc.Find("#spec").Text())
	}
}

func TestFirstStepsFollowWhatIsDone(t *testing.T) {
	t.Parallel()
	b := open(t)
	res, doc := b.post("/signup", url.Values{
		"email": {"mira@northlight.example"}, "password": {"a long enough sentence"}, "name": {"northlight"},
	})
	if res.Request.URL.Path != "/" || doc.Find(".firststeps li").Length() != 4 ||
		doc.Find(".firststeps .s-ok").Length() != 0 ||
		!strings.Contains(doc.Find(".firststeps").Text(), "mira@northlight.example") {
		t.Fatalf("after sign-up: %s %s", res.Request.URL, doc.Find("main").Text())
	}
	if to := doc.Find(".firststeps .btn.primary").AttrOr("href", ""); to != "/billing" {
		t.Errorf("the first step leads to %s", to)
	}
	b.exec("UPDATE app_user SET email_verified_at = clock_timestamp()")
	_, doc = b.get("/")
	if doc.Find(".firststeps .s-ok").Length() != 1 || doc.Find(".firststeps .btn.primary").AttrOr("href",
		"") != "/billing" {
		t.Errorf("the address is confirmed: %s", doc.Find(".firststeps").Text())
	}
	b.gangOf(true) // a cluster
	if res, _ = b.get("/"); res.Request.URL.Path != "/clusters" {
		t.Errorf("all is done, and the front page is %s", res.Request.URL)
	}
}

func TestTheStatusPageSaysOnlyWhatIsMeasured(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.signUp()
	b.sell(1)
	b.post("/signout", nil)
	b.exec(`INSERT INTO deaf_gap (listener, from_ms, to_ms, cause) SELECT l, ms, ms + 125000, 'pulse'
		FROM unnest(ARRAY['one', 'two']) l, (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 86400000
		ms) m`)
	_, doc := b.get("/status")
	text := strings.Join(strings.Fields(doc.Find("main").Text()), " ")
	for _, want := range []string{"Hosts connected1 of 1", "2 min 05 s", "The platform works", "DatabaseWorks"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if doc.Find("[aria-labelledby=int-h] tbody tr").Length() != 1 {
		t.Errorf("two listeners that fail together are not one interruption: %s", text)
	}
}

func TestOwnTermsTakeThePlaceOfTheDescription(t *testing.T) {
	t.Parallel()
	b := open(t)
	_, doc := b.get("/terms")
	if !strings.Contains(doc.Find(".prose").Text(), "Our own terms") || doc.Find(".prose h2").Length() != 1 ||
		doc.Find(".prose p").Length() != 3 || doc.Find(".callout").Length() != 0 {
		t.Error(doc.Find("main").Text())
	}
	if _, doc = b.get("/privacy"); !strings.Contains(doc.Find(".callout").Text(), "not a contract") {
		t.Error(doc.Find("main").Text())
	}
}
